"""A cache of what follows from a schema alone, by the identity of the schema: metadata is cached, so that queries get
the same object again, and hashing it costs more than most of what is cached here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from pyiceberg.schema import Schema

MAX_CACHED = 512
Value = TypeVar("Value")


def cache_by_schema(function: Callable[[Schema], Value]) -> Callable[[Schema], Value]:
    """Caches a function of a schema; evicts the least recently used."""
    cached: OrderedDict[int, tuple[Schema, Value]] = OrderedDict()  # holds the schema, so that its id stays its own
    lock = threading.Lock()

    @wraps(function)
    def call(schema: Schema) -> Value:
        with lock:
            entry = cached.get(id(schema))
            if entry is not None:
                cached.move_to_end(id(schema))
                return entry[1]
        value = function(schema)
        with lock:
            cached[id(schema)] = (schema, value)
            if len(cached) > MAX_CACHED:
                cached.popitem(last=False)
        return value

    return call
