"""What a statement needs of each table, from its syntax tree: columns, the filter on its rows, a number of rows.

Columns only size the query, and limit what is read of files that DuckDB does not read itself: DuckDB reads of a Parquet
file what its own plan needs. The filter leaves out files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from catalog.query.plan.conditions import ConditionReader
from catalog.query.plan.predicates import Or, Predicate
from catalog.query.plan.pushdown import push_conditions
from catalog.query.plan.syntax import Node, Select, Source, nodes, selects, used_columns
from catalog.query.run.engine import Session


@dataclass(frozen=True)
class ScanRequirements:
    """Everything that a query needs of one relation, over all references to it.

    `exact`: the predicate is the whole filter of the only SELECT. `fetch`: any so many rows are enough.
    """

    columns: tuple[str, ...]
    predicate: Predicate | None = None
    exact: bool = True
    fetch: int | None = None


@dataclass(frozen=True)
class ScannedRelation:
    """A relation as the statement names it. `changed`: the columns that are not shown as they are stored."""

    schema: Schema
    changed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Reference:
    """A SELECT with the relation in FROM."""

    select: Select
    source: Source


@dataclass(frozen=True)
class Needs:
    """What a statement needs of one relation, before the values of its parameters are known."""

    columns: tuple[str, ...]
    fetch: int | None
    fields: Mapping[str, NestedField]
    changed: frozenset[str]
    references: tuple[_Reference, ...]
    columns_of: Callable[[str], set[str] | None]

    def requirements(self, session: Session, parameters: Mapping[str, Any]) -> ScanRequirements:
        found = [
            ConditionReader(
                session, parameters, reference.select, reference.source, self.fields, self.changed, self.columns_of
            ).predicate()
            for reference in self.references
        ]
        return _merged(found, self.columns, self.fetch)


def needs_of(tree: Node, relations: Mapping[str, ScannedRelation]) -> dict[str, Needs]:
    """Needs by relation, named as in the tree."""
    every_node = list(nodes(tree))
    every_select = list(selects(every_node))
    columns_of = {name: {field.name.lower() for field in scanned.schema.fields} for name, scanned in relations.items()}
    every_select = push_conditions(every_select, every_node, columns_of.get)
    fields = {
        name: {field.name.lower(): field for field in scanned.schema.fields} for name, scanned in relations.items()
    }
    names = {name: set(by_name) for name, by_name in fields.items()}
    references: dict[str, list[_Reference]] = {name: [] for name in relations}
    for select in every_select:
        for source in select.sources:
            if source.relation in references:
                references[source.relation].append(_Reference(select, source))
    fetch = _fetch(tree, every_select) if len(relations) == 1 else None
    every_alias = {source.alias for select in every_select for source in select.sources}
    needs = {}
    for name, scanned in relations.items():
        aliases = {reference.source.alias for reference in references[name]}
        used = used_columns(every_node, aliases, every_alias, names[name].__contains__)
        columns = tuple(field.name for field in scanned.schema.fields if used is None or field.name.lower() in used)
        needs[name] = Needs(columns, fetch, fields[name], scanned.changed, tuple(references[name]), names.get)
    return needs


def _merged(
    found: list[tuple[Predicate | None, bool]], columns: tuple[str, ...], fetch: int | None
) -> ScanRequirements:
    if len(found) == 1:
        predicate, exact = found[0]
        return ScanRequirements(columns, predicate, exact, fetch)
    predicates = [predicate for predicate, _ in found if predicate is not None]
    whole = Or(tuple(predicates)) if predicates and len(predicates) == len(found) else None
    return ScanRequirements(columns, whole, exact=False)


def _is_plain(item: Node) -> bool:
    """Whether a SELECT item gives one value for each row of the table: no aggregate, no unnest, also not within."""
    if item.get("class") == "STAR":
        return not item.get("columns") and not item.get("replace_list")
    return item.get("class") in ("COLUMN_REF", "CONSTANT")


def _fetch(tree: Node, every_select: list[Select]) -> int | None:
    """`SELECT a, b FROM t LIMIT n`: any n rows are enough. None for everything else."""
    if tree.get("type") != "SELECT_NODE" or len(every_select) != 1 or len(every_select[0].sources) != 1:
        return None
    clauses = ("where_clause", "group_expressions", "group_sets", "having", "qualify", "sample")
    if any(tree.get(name) for name in clauses) or tree["from_table"]["type"] != "BASE_TABLE":
        return None
    if tree["from_table"].get("sample") or tree.get("aggregate_handling") != "STANDARD_HANDLING":
        return None
    if not all(map(_is_plain, tree["select_list"])):
        return None
    modifiers = tree["modifiers"]
    if len(modifiers) != 1 or modifiers[0]["type"] != "LIMIT_MODIFIER" or modifiers[0]["limit_type"] != "ROW_COUNT":
        return None
    limit, offset = (_whole_number(modifiers[0].get(name)) for name in ("limit", "offset"))
    if limit is None or (modifiers[0].get("offset") is not None and offset is None):
        return None
    return limit + (offset or 0)


def _whole_number(node: Any) -> int | None:
    literal = node.get("literal") if isinstance(node, dict) else None
    return int(literal["text"]) if literal and literal["kind"] == "INTEGER" and literal["text"].isdecimal() else None
