"""Java lists asked as a whole: a call into the JVM may take a millisecond, and a table has thousands of files.

A method of every item is a few calls here, however many items there are: the JVM makes the rest by itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from typing import Any

from pyspark.sql import SparkSession

_MAP, _TAKE = "java.util.function.UnaryOperator", "java.util.function.Consumer"
_COLLECTION = "java.util.Collection"


class JavaList:
    """A list on the Java side; `java` is the list itself, for what takes one."""

    def __init__(self, spark: SparkSession, java: Any = None) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        self.java = self._jvm.java.util.ArrayList() if java is None else java

    @classmethod
    def of(cls, spark: SparkSession, iterable: Any) -> JavaList:
        """All that a Java iterable gives."""
        found = cls(spark)
        # By reflection: py4j does not find what an unnamed class has from its interface.
        walk = found._method("java.lang.Iterable", "forEach", _TAKE)
        walk.invoke(iterable, found._array("Object", found._filling("add", "java.lang.Object")))
        return found

    def __len__(self) -> int:
        return int(self.java.size())

    def each(self, owner: str, method: str) -> JavaList:
        """What the method without arguments of the class or interface `owner` answers for each item."""
        return self._mapped(self._handle(owner, method))

    def flat(self) -> JavaList:
        """The items of its items, which are lists."""
        found = JavaList(self._spark)
        self.java.forEach(found._filling("addAll", _COLLECTION))
        return found

    def at(self, places: Collection[int]) -> JavaList:
        """The items at these places, in their order: a few calls for each run of neighbours."""
        if len(places) == len(self):
            return self
        found = JavaList(self._spark)
        for start, end in runs(places):
            found.java.addAll(self.java.subList(start, end))
        return found

    def texts(self) -> list[str]:
        """The items as text, all in one answer."""
        if not len(self):
            return []
        between = uuid.uuid4().hex  # stands in no item
        texts = self._mapped(self._handle("java.util.Objects", "toString", "java.lang.Object"))  # one may be null
        return str(self._jvm.java.lang.String.join(between, texts.java)).split(between)

    def _mapped(self, handle: Any) -> JavaList:
        found = JavaList(self._spark, self._jvm.java.util.ArrayList(self.java))
        found.java.replaceAll(self._function(_MAP, handle))
        return found

    def _filling(self, method: str, parameter: str) -> Any:
        """A consumer that puts what it is given into this list."""
        return self._function(_TAKE, self._handle(_COLLECTION, method, parameter).bindTo(self.java))

    def _function(self, kind: str, handle: Any) -> Any:
        return self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(self._class(kind), handle)

    def _handle(self, owner: str, method: str, *parameters: str) -> Any:
        found = self._method(owner, method, *parameters)
        return self._jvm.java.lang.invoke.MethodHandles.publicLookup().unreflect(found)

    def _method(self, owner: str, method: str, *parameters: str) -> Any:
        return self._class(owner).getMethod(method, self._array("Class", *map(self._class, parameters)))

    def _array(self, kind: str, *items: Any) -> Any:
        gateway: Any = self._spark.sparkContext._gateway
        found = gateway.new_array(getattr(self._jvm.java.lang, kind), len(items))
        for at, item in enumerate(items):
            found[at] = item
        return found

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)


def runs(places: Iterable[int]) -> list[tuple[int, int]]:
    """The places as half-open ranges, in order."""
    found: list[tuple[int, int]] = []
    for place in sorted(set(places)):
        if found and found[-1][1] == place:
            found[-1] = (found[-1][0], place + 1)
        else:
            found.append((place, place + 1))
    return found
