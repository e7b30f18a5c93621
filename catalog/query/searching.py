"""Search within a query: each operator becomes a function of its row's key, filled from a vector table.

    bind     each operator finds its vector table, as of the very snapshot that the query reads the source at
    place    `text <-> $q` becomes `strandline_search_0(n."id")`, and the mention of the table gets rows of its own
    answer   the vector table is asked; the functions look up what it said, the mention holds the rows it found

What the query says of the rows it says to the engine, so every filter and join holds whatever the vector table left
out; conditions that the vector table can check are handed on, and are checked before its top k. Where others decide
too, the search is widened until the limit is met or every row was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from catalog.errors import Invalid
from catalog.query.binding import Bound
from catalog.query.engine import Parameters, named, quoted
from catalog.query.lookups import Lookup, rows_with
from catalog.query.predicates import In, Predicate, conjunction
from catalog.query.search_operators import Operator
from catalog.query.statement import DIALECT

PLACE = "strandline_search"
MOST_COMPARED = 200_000
"""So many distances are computed at most where the query needs all of them."""
FIRST, WIDER = 100, 8
LISTED_KEYS = 1000
_RESULTS: dict[str, pa.DataType] = {"distance": pa.float64(), "match": pa.bool_(), "score": pa.float64()}
DISTANCE = "_distance"
_VALUES = {"distance": DISTANCE, "match": "_score", "score": "_score"}


class Ranked(Protocol):
    """A version of a vector table."""

    @property
    def id(self) -> str: ...
    @property
    def column(self) -> str: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def version(self) -> int: ...
    @property
    def snapshot_id(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def manifest_sha256(self) -> str: ...


class Ranking(Protocol):
    """The vector tables, as far as a query asks them. The room beside this one has it; `catalog.lake` brings it."""

    def find(self, table: str, table_uuid: str, column: str | None, snapshot_id: int) -> Any: ...
    def nearest(
        self, at: Any, asked: str | Sequence[float], k: int | None, where: str | None, columns: Sequence[str]
    ) -> pa.Table: ...
    def matching(self, at: Any, words: str, every: bool, where: str | None, columns: Sequence[str]) -> pa.Table: ...


@dataclass(frozen=True)
class Search:
    """One operator, bound. `at` is None where the table is empty; `k`: so many of the nearest are wanted."""

    operator: Operator
    name: str
    bound: Bound
    key: tuple[str, ...]
    at: Ranked | None
    asked: str | tuple[float, ...]
    where: str | None
    k: int | None
    limit: int
    closed: bool
    """Nothing but `where` and the words decides which rows are wanted: the first k are the answer's."""

    @property
    def restricts(self) -> bool:
        return self.k is not None or self.operator.narrows

    @property
    def types(self) -> list[pa.DataType]:
        return [self.bound.relation.arrow.field(name).type for name in self.key]

    def call(self) -> str:
        alias = quoted(self.operator.alias)
        return f"{self.name}({', '.join(f'{alias}.{quoted(name)}' for name in self.key)})"


@dataclass(frozen=True)
class Function:
    """What the engine is given of an operator."""

    name: str
    arguments: list[pa.DataType]
    result: pa.DataType
    call: Callable[..., Any]


@dataclass
class Found:
    """One round: what the vector tables said. `rows` by mention; `missing`: a wider round could find more."""

    functions: list[Function] = field(default_factory=list)
    keys: dict[int, tuple[Search, pa.Table]] = field(default_factory=dict)
    rows: dict[int, pa.Table] = field(default_factory=dict)
    wanted: int = 0
    missing: bool = False

    def enough(self, rows: int) -> bool:
        return not self.missing or rows >= self.wanted

    def predicate(self, mention: int, scanned: Predicate | None) -> Predicate | None:
        """What files and row groups can be left out by, besides what the query says itself."""
        if mention not in self.keys:
            return scanned
        search, keys = self.keys[mention]
        if len(search.key) > 1 or len(keys) > LISTED_KEYS:
            return scanned
        listed = In(search.key[0], tuple(keys.column(0)))
        return conjunction([part for part in (scanned, listed) if part is not None])

    def restrict(self, mention: int, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The rows of the mention that were found."""
        if mention not in self.keys:
            return batches
        search, keys = self.keys[mention]
        kept = [batch.filter(rows_with(keys, [batch.column(name) for name in search.key])) for batch in batches]
        return [batch for batch in kept if batch.num_rows]


@dataclass(frozen=True)
class Searches:
    """All searches of a query; falsy if it has none."""

    ranking: Ranking | None = None
    bound: tuple[Search, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.bound)

    def placed(self, mention: int) -> bool:
        return any(one.operator.mention == mention for one in self.bound)

    def parts(self) -> list[tuple[int, int, str]]:
        """What stands in the text instead of the operators."""
        return [(one.operator.start, one.operator.end, one.call()) for one in self.bound]

    def for_engine(self, parameters: Parameters) -> dict[str, Any]:
        """The parameters that are left: what operators alone name went with them, and it has no use for vectors."""
        alone = {one.operator.parameter: one.operator.alone for one in self.bound}
        given = named(parameters)
        return {
            name: value
            for name, value in given.items()
            if name not in alone or (isinstance(value, str) and not alone[name])
        }

    def asked(self) -> tuple[str | tuple[float, ...], ...]:
        """What is looked for."""
        return tuple(one.asked for one in self.bound)

    def versions(self) -> tuple[tuple[str, int, str], ...]:
        """What is looked through: a version's number comes again where a vector table was dropped and made anew."""
        return tuple((one.at.id, one.at.version, one.at.manifest_sha256) for one in self.bound if one.at is not None)

    def receipt(self) -> dict[str, dict[str, Any]]:
        """By vector table: the version that was searched, and whether it was behind the snapshot the query read."""
        said: dict[str, dict[str, Any]] = {}
        for one in self.bound:
            if one.at is not None:
                said[one.at.id] = {
                    "version": one.at.version,
                    "snapshot": str(one.at.snapshot_id),
                    "manifest_sha256": one.at.manifest_sha256,
                    "behind": one.at.snapshot_id != one.bound.relation.snapshot_id,
                }
        return said

    def reason(self) -> str:
        ids = ", ".join(dict.fromkeys(one.at.id for one in self.bound if one.at is not None))
        return f"it searches {ids or 'an empty table'}, which is done here and never on Spark"

    def placeholders(self) -> list[Function]:
        """The functions as the planner needs them: of the right types, and never called."""
        return [_function(one, _nothing(one)) for one in self.bound]

    def rounds(self, columns: Mapping[int, Sequence[str]]) -> Iterator[Found]:
        """Asks the vector tables, wider each time. `columns`: what the query needs of each mention.

        Memory: the keys found and, where the vector table holds all that is needed, those columns.
        """
        factor = 1
        while True:
            found = self._round(columns, factor)
            yield found
            if not found.missing:
                return
            factor *= WIDER

    def _round(self, columns: Mapping[int, Sequence[str]], factor: int) -> Found:
        found = Found()
        for mention in dict.fromkeys(one.operator.mention for one in self.bound):
            here = [one for one in self.bound if one.operator.mention == mention]
            # Words first: which rows have them may be all that the nearest are looked for among.
            here.sort(key=lambda one: (one.k is not None, not one.operator.narrows))
            holder = next((one for one in reversed(here) if one.restricts and covered(one, columns[mention])), None)
            if holder is not None and any(one.restricts for one in here[here.index(holder) + 1 :]):
                holder = None
            among: pa.Table | None = None
            for one in here:
                table = self._ask(one, columns[mention] if one is holder else (), factor, among, found)
                found.functions.append(_function(one, table))
                if one.restricts:
                    among = table if among is None else table.filter(rows_with(among, _keys(one, table)))
                    found.keys[mention] = (one, among.select(list(one.key)))
                    if one is holder:
                        found.rows[mention] = among
        return found

    def _ask(self, one: Search, columns: Sequence[str], factor: int, among: pa.Table | None, found: Found) -> pa.Table:
        if one.at is None or self.ranking is None or one.at.rows == 0:
            return _nothing(one)
        columns = list(dict.fromkeys([*one.key, *columns]))
        if one.operator.kind != "distance":
            assert isinstance(one.asked, str)
            every = one.operator.kind == "match"
            return self.ranking.matching(one.at, one.asked, every, one.where if one.restricts else None, columns)
        where, closed, k = one.where, one.closed, one.k
        if k is None:
            if one.at.rows > MOST_COMPARED:
                raise Invalid(
                    f"the query needs the distance of all {one.at.rows} rows of {one.at.id}, over the limit of "
                    f"{MOST_COMPARED}: ask for the nearest with ORDER BY … <-> … LIMIT n"
                )
            return self.ranking.nearest(one.at, one.asked, None, None, columns)
        if among is not None:
            listed = _listed(one, among)
            where, closed = _and(where, listed), closed and listed is not None
        wide = k if closed else max(k, FIRST) * factor
        if not closed and wide * WIDER >= one.at.rows <= MOST_COMPARED:
            return self.ranking.nearest(one.at, one.asked, None, where, columns)
        if not closed and wide < one.at.rows:
            found.missing, found.wanted = True, one.limit
        return self.ranking.nearest(one.at, one.asked, min(wide, one.at.rows), where, columns)


def covered(one: Search, columns: Sequence[str]) -> bool:
    """Whether the vector table has all that the query needs, as it was at that snapshot under that schema."""
    relation = one.bound.relation
    if one.at is None or one.at.snapshot_id != relation.snapshot_id or not set(columns) <= set(one.at.columns):
        return False
    made = one.bound.snapshot
    return made is not None and made.schema_id == relation.schema.schema_id


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _listed(one: Search, among: pa.Table) -> str | None:
    """Those keys as a condition, if they are few and simple."""
    kind = one.types[0]
    if len(one.key) > 1 or len(among) > LISTED_KEYS or not (pa.types.is_integer(kind) or is_text(kind)):
        return None
    if not len(among):
        return "false"
    values = ", ".join(exp.convert(value).sql(dialect=DIALECT) for value in among.column(one.key[0]).to_pylist())
    return f"`{one.key[0]}` IN ({values})"


def _and(one: str | None, two: str | None) -> str | None:
    return " AND ".join(part for part in (one, two) if part) or None


def _keys(one: Search, table: pa.Table) -> list[Any]:
    return [table.column(name).combine_chunks() for name in one.key]


def _nothing(one: Search) -> pa.Table:
    fields = [pa.field(name, kind) for name, kind in zip(one.key, one.types, strict=True)]
    return pa.schema([*fields, pa.field(_VALUES[one.operator.kind], pa.float32())]).empty_table()


def _function(one: Search, table: pa.Table) -> Function:
    kind = one.operator.kind
    values: Any
    missing: Any
    if kind == "match":
        values, missing = pa.array([True] * len(table), pa.bool_()), pa.scalar(False)
    else:
        values = pc.cast(table.column(_VALUES[kind]).combine_chunks(), pa.float64())
        missing = pa.scalar(0.0 if kind == "score" else None, pa.float64())
    keys = [pc.cast(found, wanted) for found, wanted in zip(_keys(one, table), one.types, strict=True)]
    return Function(one.name, one.types, _RESULTS[kind], Lookup(keys, values, missing))
