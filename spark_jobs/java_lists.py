"""Java lists with bulk operations: a call into the JVM may take a millisecond, and a table has thousands of files.

Calling a method on every item takes a few calls into the JVM, however many items there are.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from typing import Any

from pyspark.sql import SparkSession

_UNARY_OPERATOR, _CONSUMER = "java.util.function.UnaryOperator", "java.util.function.Consumer"
_COLLECTION = "java.util.Collection"


class JavaList:
    """A list in the JVM; `java` is the py4j object, to pass to Java methods."""

    def __init__(self, spark: SparkSession, java: Any = None) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        self.java = self._jvm.java.util.ArrayList() if java is None else java

    @classmethod
    def of(cls, spark: SparkSession, iterable: Any) -> JavaList:
        """The items of a Java iterable."""
        items = cls(spark)
        # By reflection: py4j does not find the interface methods of an anonymous class.
        for_each = items._method("java.lang.Iterable", "forEach", _CONSUMER)
        for_each.invoke(iterable, items._array("Object", items._appender("add", "java.lang.Object")))
        return items

    def __len__(self) -> int:
        return int(self.java.size())

    def each(self, owner: str, method: str) -> JavaList:
        """The result of a method without arguments, of the class or interface `owner`, for each item."""
        return self._mapped(self._handle(owner, method))

    def flat(self) -> JavaList:
        """The items of the items, which are lists."""
        items = JavaList(self._spark)
        self.java.forEach(items._appender("addAll", _COLLECTION))
        return items

    def at(self, positions: Collection[int]) -> JavaList:
        """The items at these distinct positions, in ascending order: a few calls for each run of adjacent positions."""
        if len(positions) == len(self):
            return self
        items = JavaList(self._spark)
        for start, end in runs(positions):
            items.java.addAll(self.java.subList(start, end))
        return items

    def texts(self) -> list[str]:
        """The items as text, transferred in one call."""
        if not len(self):
            return []
        separator = uuid.uuid4().hex  # occurs in no item
        texts = self._mapped(self._handle("java.util.Objects", "toString", "java.lang.Object"))  # an item may be null
        return str(self._jvm.java.lang.String.join(separator, texts.java)).split(separator)

    def _mapped(self, handle: Any) -> JavaList:
        results = JavaList(self._spark, self._jvm.java.util.ArrayList(self.java))
        results.java.replaceAll(self._function(_UNARY_OPERATOR, handle))
        return results

    def _appender(self, method: str, parameter: str) -> Any:
        """A Java Consumer that adds its argument to this list."""
        return self._function(_CONSUMER, self._handle(_COLLECTION, method, parameter).bindTo(self.java))

    def _function(self, kind: str, handle: Any) -> Any:
        return self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(self._class(kind), handle)

    def _handle(self, owner: str, method: str, *parameters: str) -> Any:
        reflected = self._method(owner, method, *parameters)
        return self._jvm.java.lang.invoke.MethodHandles.publicLookup().unreflect(reflected)

    def _method(self, owner: str, method: str, *parameters: str) -> Any:
        return self._class(owner).getMethod(method, self._array("Class", *map(self._class, parameters)))

    def _array(self, kind: str, *items: Any) -> Any:
        gateway: Any = self._spark.sparkContext._gateway
        array = gateway.new_array(getattr(self._jvm.java.lang, kind), len(items))
        for position, item in enumerate(items):
            array[position] = item
        return array

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)


def runs(positions: Iterable[int]) -> list[tuple[int, int]]:
    """The positions as half-open ranges, in order."""
    ranges: list[tuple[int, int]] = []
    for position in sorted(set(positions)):
        if ranges and ranges[-1][1] == position:
            ranges[-1] = (ranges[-1][0], position + 1)
        else:
            ranges.append((position, position + 1))
    return ranges
