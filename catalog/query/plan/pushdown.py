"""Conditions on a subquery or a common table expression, as conditions of the SELECT within it.

Only to leave out files: the engine gets the statement as it is. A condition is passed on where the rows that fail it
cannot change the rows that meet it: not through LIMIT, samples, DISTINCT ON, set operations and outer joins that need
the row; through GROUP BY and windows if it is on a key that all of them have; and not into what is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from catalog.query.plan.syntax import Node, Select, Source, nodes

_PLAIN = frozenset(
    {"COLUMN_REF", "CONSTANT", "PARAMETER", "COMPARISON", "CONJUNCTION", "BETWEEN", "OPERATOR", "CAST", "FUNCTION"}
)
ColumnsOf = Callable[[str], set[str] | None]
"""The columns of a relation of the lake, in lower case."""
Names = tuple[str, ...]


@dataclass(frozen=True)
class _Outputs:
    """The columns of a SELECT. `columns`: their places and what they are in it, for those that are columns there.
    `passed`: it has all columns of its only source besides, under their own names. `names`: all names, if known."""

    columns: Mapping[str, tuple[int, Names]]
    passed: bool
    names: frozenset[str] | None


def push_conditions(every_select: Sequence[Select], every_node: Iterable[Node], columns_of: ColumnsOf) -> list[Select]:
    """The SELECTs, each with the conditions that come from outside in `pushed`."""
    by_node = {id(select.node): select for select in every_select}
    single = _single_references(every_node)
    push = _Pushdown(by_node, single, columns_of)
    return [replace(select, pushed=tuple(push.conditions_for(select))) for select in every_select]


def _single_references(every_node: Iterable[Node]) -> dict[int, tuple[Node, list[str]]]:
    """Common table expressions with one definition and one reference, by the reference: the query, and its columns'
    names if it says them."""
    definitions: dict[str, list[tuple[Node, list[str]]]] = {}
    references: dict[str, list[Node]] = {}
    for node in every_node:
        if isinstance(node.get("cte_map"), dict):
            for entry in node["cte_map"].get("map", ()):
                names = [str(name).lower() for name in entry["value"].get("aliases") or ()]
                query = entry["value"].get("query_node") or entry["value"].get("query", {}).get("node") or {}
                definitions.setdefault(str(entry["key"]).lower(), []).append((query, names))
        if node.get("type") == "BASE_TABLE" and not node.get("schema_name") and not node.get("catalog_name"):
            references.setdefault(str(node["table_name"]).lower(), []).append(node)
    return {
        id(references[name][0]): found[0]
        for name, found in definitions.items()
        if len(found) == 1 and len(references.get(name, ())) == 1
    }


class _Pushdown:
    def __init__(
        self, by_node: Mapping[int, Select], single: Mapping[int, tuple[Node, list[str]]], columns_of: ColumnsOf
    ) -> None:
        self._by_node, self._single, self._columns_of = by_node, single, columns_of
        self._outer: dict[int, tuple[Select, Source, list[str]]] = {}
        for select in by_node.values():
            for source in select.sources:
                inner, names = self._query_of(source)
                if id(inner) in by_node:
                    self._outer[id(inner)] = (select, source, names)

    def _query_of(self, source: Source) -> tuple[Node, list[str]]:
        """The query that a source of FROM is, and the names that it gives to its columns; empty for a table."""
        node = source.node
        if node.get("type") == "SUBQUERY":
            return node["subquery"]["node"], []
        return self._single.get(id(node), ({}, []))

    def conditions_for(self, select: Select) -> list[Node]:
        outer = self._outer.get(id(select.node))
        if outer is None:
            return []
        consumer, source, names = outer
        if not (source.filterable and source.required) or not _keeps_rows_apart(select.node):
            return []
        outputs = self._renamed(self._outputs(select), names, source)
        if outputs is None:
            return []
        conditions = [*consumer.conditions, *self.conditions_for(consumer)]
        pushed = (self._rewritten(condition, consumer, source, select, outputs) for condition in conditions)
        return [condition for condition in pushed if condition is not None]

    def _renamed(self, outputs: _Outputs, names: Sequence[str], source: Source) -> _Outputs | None:
        """With the names of `c(a, b)` and `AS x(a, b)`; None if it is not certain which columns they are."""
        aliases = [str(name).lower() for name in source.node.get("column_name_alias") or ()]
        for given in (names, aliases):
            if given and outputs.passed:
                return None
            if given:
                kept = dict(outputs.columns.values())
                columns = {name: (place, kept[place]) for place, name in enumerate(given) if place in kept}
                outputs = _Outputs(columns, False, None)
        return outputs

    def _outputs(self, select: Select) -> _Outputs:
        items = select.node["select_list"]
        stars = [item for item in items if item.get("class") == "STAR"]
        passed = len(stars) == 1 and len(select.sources) == 1 and _is_whole(stars[0], select.sources[0])
        source_names = self._names_of(select.sources[0]) if len(select.sources) == 1 else None
        if stars and (not passed or source_names is None):
            # What else it has is not known, so a name may be there twice.
            taken = {_name(item) for item in items if item.get("class") != "STAR"}
            return _Outputs(dict.fromkeys(taken, (-1, ())), passed, None)
        names = [_name(item) for item in items if item.get("class") != "STAR"]
        seen = [*names, *(source_names or ())] if stars else names
        columns = {}
        for place, item in enumerate(items):
            ref = _column_names(item)
            if item.get("class") != "STAR":
                name = _name(item)
                if ref is None or seen.count(name) > 1 or (len(ref) == 1 and _is_alias(ref[0], item, items)):
                    ref = ()
                columns[name] = (place, ref)
        return _Outputs(columns, passed, frozenset(seen))

    def _names_of(self, source: Source) -> frozenset[str] | None:
        if source.renamed:
            return None
        if source.relation is not None:
            columns = self._columns_of(source.relation)
            return None if columns is None else frozenset(columns)
        inner, names = self._query_of(source)
        if names or id(inner) not in self._by_node:
            return None
        return self._outputs(self._by_node[id(inner)]).names

    def _rewritten(
        self, condition: Node, consumer: Select, source: Source, select: Select, outputs: _Outputs
    ) -> Node | None:
        """The condition over the columns of the inner SELECT; None if it has to stay where it is."""
        if any(node.get("class", "CONSTANT") not in _PLAIN for node in nodes(condition)):
            return None
        replaced: dict[int, Names] = {}
        for node in nodes(condition):
            if node.get("class") == "COLUMN_REF":
                name = self._column_of(node, consumer, source)
                ref = None if name is None else _inner(name, select, outputs)
                if ref is None:
                    return None
                replaced[id(node)] = ref
        return _with_names(condition, replaced) if replaced else None

    def _column_of(self, node: Node, consumer: Select, source: Source) -> str | None:
        """The name of the source's column that a reference is certain to mean."""
        names = [str(name).lower() for name in node["column_names"]]
        others = [other for other in consumer.sources if other is not source]
        if len(names) == 2:
            is_source = names[0] == source.alias and all(other.alias != names[0] for other in others)
            return names[1] if is_source else None
        if len(names) != 1 or names[0] in consumer.aliases or names[0] == source.alias:
            return None
        for other in others:
            columns = self._names_of(other)
            if columns is None or names[0] in columns or other.alias == names[0]:
                return None
        return names[0]


def _keeps_rows_apart(query: Node) -> bool:
    """Whether each row of the result comes from rows of which all have its values of the grouping keys."""
    if query.get("sample") is not None or query["from_table"].get("sample") is not None:
        return False
    for modifier in query["modifiers"]:
        distinct = modifier["type"] == "DISTINCT_MODIFIER" and not modifier.get("distinct_on_targets")
        if modifier["type"] != "ORDER_MODIFIER" and not distinct:
            return False
    sets = query["group_sets"]
    return not sets or (len(sets) == 1 and sorted(sets[0]) == list(range(len(query["group_expressions"]))))


def _inner(name: str, select: Select, outputs: _Outputs) -> Names | None:
    """What a column of the result is within the SELECT, if a condition on it may be tested there."""
    _, ref = outputs.columns.get(name, (-1, ()))
    if name not in outputs.columns and outputs.passed and (outputs.names is None or name in outputs.names):
        ref = (name,)
    if not ref:
        return None
    # In a SELECT with GROUP BY a column that stands for itself is a key: the engine refuses any other.
    query = select.node
    windows = [node for part in ("select_list", "qualify", "modifiers") for node in nodes(query.get(part) or [])]
    for window in windows:
        if window.get("class") == "WINDOW" and ref not in map(_column_names, window.get("partitions") or ()):
            return None
    return ref


def _is_whole(star: Node, source: Source) -> bool:
    """Whether it is `*` or `alias.*` and no more."""
    changes = ("exclude_list", "replace_list", "rename_list", "qualified_exclude_list", "columns", "expr")
    return not any(star.get(name) for name in changes) and str(star.get("relation_name") or "").lower() in (
        "",
        source.alias,
    )


def _is_alias(name: str, item: Node, items: Sequence[Node]) -> bool:
    """Whether the name may be another item's alias."""
    return any(other is not item and str(other.get("alias") or "").lower() == name for other in items)


def _name(item: Node) -> str:
    ref = _column_names(item)
    return str(item.get("alias") or (ref[-1] if ref else "")).lower()


def _column_names(node: Node) -> Names | None:
    if node.get("class") != "COLUMN_REF" or len(node["column_names"]) > 2:
        return None
    return tuple(str(name).lower() for name in node["column_names"])


def _with_names(node: Node, replaced: Mapping[int, Names]) -> Node:
    """A copy with the names of some column references replaced."""
    if id(node) in replaced:
        return {**node, "column_names": list(replaced[id(node)])}
    return {
        key: _with_names(value, replaced)
        if isinstance(value, dict)
        else [_with_names(child, replaced) if isinstance(child, dict) else child for child in value]
        if isinstance(value, list)
        else value
        for key, value in node.items()
    }
