"""Search within a query: each search operator becomes a SQL function of the row's key, with values from a vector table.

    bind      each operator is resolved to its vector table, as of the snapshot that the query reads of the source
    replace   `text <-> $q` becomes `strandline_search_0(n."id")`, and the table reference becomes a relation of its own
    run       the vector table is searched; the functions look up its values, the relation holds the rows it returned

The engine applies every filter and join of the query itself, so the result is right whatever the vector table left out.
Conditions that the vector table can evaluate are passed to it and filter before its top k. If other conditions remain,
the search is widened until the LIMIT is filled or every row was compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from catalog.core.errors import Invalid
from catalog.query.bind.binding import BoundTable
from catalog.query.plan.predicates import In, Predicate, conjunction
from catalog.query.run.engine import Parameters, parameters_by_name, quote_identifier
from catalog.query.run.lookups import Lookup, rows_with
from catalog.query.sql.dialect import DIALECT
from catalog.query.sql.search_operators import SearchOperator

SEARCH_DATABASE = "strandline_search"
"""The engine's database of searched tables, and the prefix of the search functions' names."""
MAX_COMPARED = 200_000
"""The largest vector table of which a query may need every distance."""
FIRST_ROUND_ROWS, WIDENING_FACTOR = 100, 8
"""How many rows the first round of an incomplete search asks for, and by what factor each further round grows."""
MAX_LISTED_KEYS = 1000
_RESULT_TYPES: dict[str, pa.DataType] = {"distance": pa.float64(), "match": pa.bool_(), "score": pa.float64()}
_SQL_TYPES = {"distance": "DOUBLE", "match": "BOOLEAN", "score": "DOUBLE"}
DISTANCE = "_distance"
_VALUE_COLUMNS = {"distance": DISTANCE, "match": "_score", "score": "_score"}


class VectorTableVersion(Protocol):
    """One version of a vector table."""

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


class VectorRanking(Protocol):
    """What a query needs of the vector tables. `catalog.vectors` implements it; `catalog.lake` passes it in."""

    def find(self, table: str, table_uuid: str, column: str | None, snapshot_id: int) -> Any:
        """The version of the column's vector table, or of the table's only one, as of the snapshot."""
        ...

    def nearest(
        self, at: Any, target: str | Sequence[float], k: int | None, where: str | None, columns: Sequence[str]
    ) -> pa.Table:
        """The k rows nearest to a text or vector, among those that satisfy `where`, with `_distance`; all for None."""
        ...

    def matching(self, at: Any, words: str, every: bool, where: str | None, columns: Sequence[str]) -> pa.Table:
        """The rows that contain every one of the words, or any, among those that satisfy `where`, with `_score`."""
        ...


@dataclass(frozen=True)
class Search:
    """One bound search operator.

    `version`: None if the table is empty. `query`: the text or vector to search for. `where`: the filter that the
    vector table applies, in Lance's SQL. `k`: how many of the nearest rows are needed; None for all. `limit`: the
    query's LIMIT.
    """

    operator: SearchOperator
    name: str
    bound: BoundTable
    key: tuple[str, ...]
    version: VectorTableVersion | None
    query: str | tuple[float, ...]
    where: str | None
    k: int | None
    limit: int
    prefiltered: bool
    """`where` and the words are the query's whole filter: the k nearest rows are the result's."""

    @property
    def restricts(self) -> bool:
        """Whether rows that the vector table does not return are not needed."""
        return self.k is not None or self.operator.filters_rows

    @property
    def key_types(self) -> list[pa.DataType]:
        return [self.bound.relation.arrow.field(name).type for name in self.key]

    def call(self, suffix: str = "") -> str:
        """The function call that replaces the operator in the text."""
        alias = quote_identifier(self.operator.alias)
        return f"{self.name}{suffix}({', '.join(f'{alias}.{quote_identifier(name)}' for name in self.key)})"


@dataclass(frozen=True)
class SearchFunction:
    """A function that the engine calls with the key columns and that returns the operator's values."""

    name: str
    arguments: list[pa.DataType]
    result: pa.DataType
    call: Callable[..., Any]


@dataclass
class SearchRound:
    """The results of searching the vector tables once.

    `keys` and `rows` are by the table reference's offset in the text; `rows` only where the vector table holds every
    column the query needs. `may_find_more`: a wider round could return more rows, and `limit` of them are needed.
    """

    functions: list[SearchFunction] = field(default_factory=list)
    keys: dict[int, tuple[Search, pa.Table]] = field(default_factory=dict)
    rows: dict[int, pa.Table] = field(default_factory=dict)
    limit: int = 0
    may_find_more: bool = False

    def is_enough(self, rows: int) -> bool:
        return not self.may_find_more or rows >= self.limit

    def predicate(self, ref_start: int, scan_predicate: Predicate | None) -> Predicate | None:
        """The scan's predicate with the keys that were found, if they are few, to prune files and row groups by."""
        if ref_start not in self.keys:
            return scan_predicate
        search, keys = self.keys[ref_start]
        if len(search.key) > 1 or len(keys) > MAX_LISTED_KEYS:
            return scan_predicate
        in_keys = In(search.key[0], tuple(keys.column(0)))
        return conjunction([part for part in (scan_predicate, in_keys) if part is not None])

    def restrict(self, ref_start: int, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The rows whose keys the search returned."""
        if ref_start not in self.keys:
            return batches
        search, keys = self.keys[ref_start]
        matches = [batch.filter(rows_with(keys, [batch.column(name) for name in search.key])) for batch in batches]
        return [batch for batch in matches if batch.num_rows]


@dataclass(frozen=True)
class Searches:
    """All searches of a query; falsy if there are none."""

    ranking: VectorRanking | None = None
    bound: tuple[Search, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.bound)

    def includes(self, ref_start: int) -> bool:
        """Whether the table reference at this offset is searched."""
        return any(search.operator.ref_start == ref_start for search in self.bound)

    def replacements(self, suffix: str = "") -> list[tuple[int, int, str]]:
        """For each operator its span in the text and the function call that replaces it.

        `suffix`: makes the names of a run's functions its own, since DuckDB shares functions between connections.
        """
        return [(search.operator.start, search.operator.end, search.call(suffix)) for search in self.bound]

    def for_engine(self, parameters: Parameters) -> dict[str, Any]:
        """The parameters without those that only search operators name, and without vectors."""
        search_only = {search.operator.parameter: search.operator.parameter_is_search_only for search in self.bound}
        return {
            name: value
            for name, value in parameters_by_name(parameters).items()
            if name not in search_only or (isinstance(value, str) and not search_only[name])
        }

    def values(self) -> tuple[str | tuple[float, ...], ...]:
        """The texts and vectors that are searched for."""
        return tuple(search.query for search in self.bound)

    def versions(self) -> tuple[tuple[str, int, str], ...]:
        """The versions that are searched, with digests: a recreated vector table reuses version numbers."""
        versions = [search.version for search in self.bound if search.version is not None]
        return tuple((version.id, version.version, version.manifest_sha256) for version in versions)

    def receipt(self) -> dict[str, dict[str, Any]]:
        """By vector table: the version that was searched, and whether it was behind the snapshot the query read."""
        searched: dict[str, dict[str, Any]] = {}
        for search in self.bound:
            version = search.version
            if version is not None:
                searched[version.id] = {
                    "version": version.version,
                    "snapshot": str(version.snapshot_id),
                    "manifest_sha256": version.manifest_sha256,
                    "behind": version.snapshot_id != search.bound.relation.snapshot_id,
                }
        return searched

    def reason(self) -> str:
        """Why the query runs in this process."""
        ids = ", ".join(dict.fromkeys(search.version.id for search in self.bound if search.version is not None))
        return f"it searches {ids or 'an empty table'}, which runs in this process and never on Spark"

    def placeholders(self) -> list[tuple[int, int, str]]:
        """For each operator its span in the text, and a NULL of its type for the planner."""
        return [
            (search.operator.start, search.operator.end, f"CAST(NULL AS {_SQL_TYPES[search.operator.kind]})")
            for search in self.bound
        ]

    def rounds(self, columns: Mapping[int, Sequence[str]]) -> Iterator[SearchRound]:
        """Searches the vector tables, wider each round. `columns`: those that the query needs, by table reference.

        Memory: the keys found and, where the vector table holds all the columns, those columns.
        """
        factor = 1
        while True:
            search_round = self._round(columns, factor)
            yield search_round
            if not search_round.may_find_more:
                return
            factor *= WIDENING_FACTOR

    def _round(self, columns: Mapping[int, Sequence[str]], factor: int) -> SearchRound:
        search_round = SearchRound()
        for ref_start in dict.fromkeys(search.operator.ref_start for search in self.bound):
            searches = [search for search in self.bound if search.operator.ref_start == ref_start]
            # Words first: the rows that have them may be few enough to restrict the search for the nearest.
            searches.sort(key=lambda search: (search.k is not None, not search.operator.filters_rows))
            restricting = [search for search in searches if search.restricts]
            # The last restricting search gives the final rows: its vector table supplies them if it has all columns.
            last = restricting[-1] if restricting and is_covered(restricting[-1], columns[ref_start]) else None
            matches: pa.Table | None = None
            for search in searches:
                rows = self._search(search, columns[ref_start] if search is last else (), factor, matches, search_round)
                search_round.functions.append(_function(search, rows))
                if search.restricts:
                    matches = rows if matches is None else rows.filter(rows_with(matches, _keys(search, rows)))
                    search_round.keys[ref_start] = (search, matches.select(list(search.key)))
                    if search is last:
                        search_round.rows[ref_start] = matches
        return search_round

    def _search(
        self, search: Search, columns: Sequence[str], factor: int, among: pa.Table | None, search_round: SearchRound
    ) -> pa.Table:
        """Runs one search. `among`: the rows that earlier searches of the same table reference returned."""
        version = search.version
        if version is None or self.ranking is None or version.rows == 0:
            return _no_rows(search)
        columns = list(dict.fromkeys([*search.key, *columns]))
        if search.operator.kind != "distance":
            assert isinstance(search.query, str)
            every = search.operator.kind == "match"
            where = search.where if search.restricts else None
            return self.ranking.matching(version, search.query, every, where, columns)
        where, prefiltered, k = search.where, search.prefiltered, search.k
        if k is None:
            if version.rows > MAX_COMPARED:
                raise Invalid(
                    f"the query needs the distance of all {version.rows} rows of {version.id}, over the limit of "
                    f"{MAX_COMPARED}: ask for the nearest with ORDER BY … <-> … LIMIT n"
                )
            return self.ranking.nearest(version, search.query, None, None, columns)
        if among is not None:
            in_keys = _keys_condition(search, among)
            where, prefiltered = _and(where, in_keys), prefiltered and in_keys is not None
        count = k if prefiltered else max(k, FIRST_ROUND_ROWS) * factor
        if not prefiltered and count * WIDENING_FACTOR >= version.rows <= MAX_COMPARED:
            return self.ranking.nearest(version, search.query, None, where, columns)
        if not prefiltered and count < version.rows:
            search_round.may_find_more, search_round.limit = True, search.limit
        return self.ranking.nearest(version, search.query, min(count, version.rows), where, columns)


def is_covered(search: Search, columns: Sequence[str]) -> bool:
    """Whether the vector table holds these columns as of the query's snapshot, under the same schema."""
    relation, version = search.bound.relation, search.version
    if version is None or version.snapshot_id != relation.snapshot_id or not set(columns) <= set(version.columns):
        return False
    snapshot = search.bound.snapshot
    return snapshot is not None and snapshot.schema_id == relation.schema.schema_id


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _keys_condition(search: Search, rows: pa.Table) -> str | None:
    """The rows' keys as a condition in Lance's SQL; None if they are many, composite, or of another type."""
    type_ = search.key_types[0]
    if len(search.key) > 1 or len(rows) > MAX_LISTED_KEYS or not (pa.types.is_integer(type_) or is_text(type_)):
        return None
    if not len(rows):
        return "false"
    values = ", ".join(exp.convert(value).sql(dialect=DIALECT) for value in rows.column(search.key[0]).to_pylist())
    return f"`{search.key[0]}` IN ({values})"


def _and(left: str | None, right: str | None) -> str | None:
    return " AND ".join(condition for condition in (left, right) if condition) or None


def _keys(search: Search, rows: pa.Table) -> list[Any]:
    return [rows.column(name).combine_chunks() for name in search.key]


def _no_rows(search: Search) -> pa.Table:
    fields = [pa.field(name, type_) for name, type_ in zip(search.key, search.key_types, strict=True)]
    return pa.schema([*fields, pa.field(_VALUE_COLUMNS[search.operator.kind], pa.float32())]).empty_table()


def _function(search: Search, rows: pa.Table) -> SearchFunction:
    kind = search.operator.kind
    values: Any
    missing: Any
    if kind == "match":
        values, missing = pa.array([True] * len(rows), pa.bool_()), pa.scalar(False)
    else:
        values = pc.cast(rows.column(_VALUE_COLUMNS[kind]).combine_chunks(), pa.float64())
        missing = pa.scalar(0.0 if kind == "score" else None, pa.float64())
    keys = [pc.cast(key, type_) for key, type_ in zip(_keys(search, rows), search.key_types, strict=True)]
    return SearchFunction(search.name, search.key_types, _RESULT_TYPES[kind], Lookup(keys, values, missing))
