"""Pure work that every simulated process repeats, done once: a run of many seeds costs half of it.

Only functions whose answer depends on their arguments alone, and whose answers nobody changes. The lake's own caches
stay those of one process (`install.py`): whether one is stale is what the simulation is about.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
from pyiceberg.avro import file as avro_file
from pyiceberg.avro import resolver
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 2000
_readers: dict[tuple[Any, ...], tuple[Any, tuple[Any, Any]]] = {}


@functools.lru_cache(maxsize=256)
def _schema(text: str) -> Any:
    return AvroSchemaConversion().avro_to_iceberg(json.loads(text))


def _get_schema(header: Any) -> Any:
    return _schema(header.meta["avro.schema"])


def _resolve_once(resolve: Callable[..., Any]) -> Callable[..., Any]:
    def resolved(file_schema: Any, read_schema: Any, types: Any, enums: Any) -> Any:
        # Schemas by identity: to compare two costs as much as to resolve them. They are kept, so no id comes again.
        key = (id(file_schema), id(read_schema), *types.items(), *enums.items())
        if key not in _readers:
            if len(_readers) > LIMIT:
                _readers.clear()
            _readers[key] = (resolve(file_schema, read_schema, types, enums), (file_schema, read_schema))
        return _readers[key][0]

    return resolved


@contextmanager
def memoised() -> Iterator[None]:
    """For the time of a run. One core is enough for rows by the dozen: threads would only cost."""
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    with ExitStack() as stack:
        stack.callback(pa.set_cpu_count, threads)
        stack.enter_context(patch.object(avro_file.AvroFileHeader, "get_schema", _get_schema))
        stack.enter_context(patch.object(avro_file, "resolve_reader", _resolve_once(resolver.resolve_reader)))
        yield
