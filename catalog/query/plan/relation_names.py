"""The relations of a statement under the names that the engine's text has for them, with masks and row filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from catalog.core.errors import Denied
from catalog.core.point_in_time import PointInTime
from catalog.query.bind.binding import Binding, BoundTable, QueryCaller
from catalog.query.run import search
from catalog.query.run.engine import quote_identifier
from catalog.query.run.search import Searches
from catalog.query.scan.scan_sql import check_names
from catalog.query.sql.statement import Statement, splice

_VERSIONS_DATABASE = "strandline_versions"
"""The database, in a plan, of tables that are read at an AS OF of their own."""
_EVERY_ROW = (1 << 63) - 1


@dataclass(frozen=True)
class AccessRules:
    """What one caller sees of one table: the rows for which `row_filter` is true, with `columns` masked.

    `columns` maps a column to the SQL expression shown instead of it, or to None to hide it. Other columns are shown
    unchanged.
    """

    row_filter: str | None = None
    columns: Mapping[str, str | None] | None = None


RulesOf = Callable[[QueryCaller | None, str], AccessRules | None]


@dataclass(frozen=True)
class PlannedRelation:
    """One relation of the query and its name in the engine. `label`: `table`, or `table@point-in-time`."""

    bound: BoundTable
    database: str
    table: str
    label: str
    ref_start: int | None = None
    """For a searched table reference, its offset in the text: a search reads different rows for each reference."""
    addressed: bool = False
    """Whether each row has its address: for statements that write (catalog/query/write)."""

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True)
class View:
    """What a caller sees of a relation: `items`, of the rows for which `row_filter` is true.

    `changed`: the columns that are masked or hidden. `hidden`: those that are not there at all.
    """

    name: str
    table: str
    items: tuple[str, ...]
    row_filter: str | None
    changed: frozenset[str]
    hidden: frozenset[str]

    def sql(self, source: str) -> str:
        """The SELECT over the relation's own source."""
        where = f" WHERE ({self.row_filter})" if self.row_filter else ""
        return f"SELECT {', '.join(self.items)} FROM {source} AS {quote_identifier(self.table)}{where}"  # noqa: S608

    def engine_sql(self, source: str) -> str:
        """The same for DuckDB: it moves no condition below a LIMIT. Else a condition of the caller that fails on a row
        which the filter hides could run first, and its error would show the row."""
        return f"{self.sql(source)} LIMIT {_EVERY_ROW}" if self.row_filter else self.sql(source)


def engine_text(
    statement: Statement,
    refs: Mapping[int, str],
    sources: Mapping[str, str],
    replacements: Sequence[tuple[int, int, str]] = (),
) -> str:
    """The statement with each table replaced by its source in SQL. `refs`: relation names by the offset of the ref."""
    parts = list(replacements)
    summarized = {
        max(part.meta["end"] for part in node.this.find_all(exp.Identifier)) + 1
        for node in statement.tree.find_all(exp.Summarize)
        if isinstance(node.this, exp.Table)
    }
    for ref in statement.refs:
        alias = "" if ref.aliased else f" AS {quote_identifier(ref.table)}"
        select = "SELECT * FROM " if ref.end in summarized else ""  # SUMMARIZE takes a name or a SELECT, no subquery
        parts.append((ref.start, ref.end, select + sources[refs[ref.start]] + alias))
    return splice(statement.text, [*parts, *statement.qualifiers])


def with_views(sources: Mapping[str, str], views: Sequence[View]) -> dict[str, str]:
    """The sources, with masks and row filters in front of the tables that have them."""
    return {**sources, **{view.name: f"({view.engine_sql(sources[view.name])})" for view in views}}


@dataclass(frozen=True)
class RelationNames:
    """The relations under their names, the views over some of them, and the text for Spark with these names."""

    relations: tuple[PlannedRelation, ...]
    views: tuple[View, ...]
    refs: dict[int, str]
    text: str


def name_relations(
    statement: Statement,
    binding: Binding,
    rules_of: Callable[[str], AccessRules | None],
    searches: Searches,
    addressed: int | None = None,
) -> RelationNames:
    """`addressed`: the offset of the table reference whose rows have addresses."""
    relations: dict[tuple[str, PointInTime | None, int | None], PlannedRelation] = {}
    views: list[View] = []
    refs: dict[int, str] = {}
    replacements: list[tuple[int, int, str]] = searches.replacements()
    for ref in statement.refs:
        name = binding.names[ref]
        database, _, table = name.partition(".")
        searched_at = ref.start if searches.includes(ref.start) else None
        has_addresses = ref.start == addressed
        key = (name, ref.as_of, ref.start if has_addresses else searched_at)
        if key not in relations:
            engine_name = (database, table)
            if searched_at is not None:
                engine_name = (search.SEARCH_DATABASE, f"r{ref.start}")
            elif ref.as_of is not None or has_addresses:
                engine_name = (_VERSIONS_DATABASE, f"r{ref.start}")
            label = name if ref.as_of is None else f"{name}@{ref.as_of}"
            relation = PlannedRelation(binding.of(ref), *engine_name, label, searched_at, has_addresses)
            check_names(relation.bound.relation)
            relations[key] = relation
            rules = rules_of(name)
            if rules is not None and has_addresses:
                raise Denied(f"you see {name} through a filter or masks, so you cannot change its rows", subject=name)
            if rules is not None:
                views.append(_view(relation, rules))
        planned = relations[key]
        refs[ref.start] = planned.name
        alias = "" if ref.aliased else f" AS {quote_identifier(ref.table)}"
        new = ".".join(map(quote_identifier, (planned.database, planned.table))) + alias
        replacements.append((ref.start, ref.end, new))
    text = splice(statement.text, [*replacements, *statement.qualifiers])
    return RelationNames(tuple(relations.values()), tuple(views), refs, text)


def _view(planned: PlannedRelation, rules: AccessRules) -> View:
    masks = rules.columns or {}
    items, changed, hidden = [], set(), set()
    for name in planned.bound.relation.arrow.names:
        expression = masks.get(name, quote_identifier(name))
        if name in masks:
            changed.add(name)
        if expression is None:
            hidden.add(name)
        else:
            items.append(f"{expression} AS {quote_identifier(name)}")
    table = planned.bound.relation.name.partition(".")[2]
    return View(planned.name, table, tuple(items), rules.row_filter, frozenset(changed), frozenset(hidden))
