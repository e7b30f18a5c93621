"""DuckDB's own syntax tree of a statement: what it may call, and the SELECTs with the tables of the lake in FROM.

Whatever decides rights or leaves files out is read from this tree, never from another parser's: two parsers may
disagree. Tables of the lake are `strandline.<relation>` in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeAlias

from catalog.core.errors import Invalid
from catalog.query.plan.functions import ALLOWED_FUNCTIONS, CALL_BY_NAME

Node: TypeAlias = dict[str, Any]

TABLES_SCHEMA = "strandline"
"""The schema under which the planner names the tables of the lake."""
ROW_SOURCES = frozenset({"generate_series", "range", "unnest", "json_each", "json_tree"})
"""Functions in FROM that make rows from their arguments alone. Any other could read what was not granted."""
_CALLS = frozenset({"FUNCTION", "WINDOW"})
_CALLABLE = ALLOWED_FUNCTIONS | ROW_SOURCES
_ENGINE_TABLES = ("duckdb_", "pg_", "pragma_", "sqlite_")
"""What the names of DuckDB's own tables begin with, as far as they need no schema."""
_EVERY_ROW_JOINS = frozenset({"ASOF", "POSITIONAL"})


@dataclass(frozen=True)
class Source:
    """One item of FROM. `relation`: the table of the lake; None for anything else. `filterable`: dropping rows that
    fail a condition of WHERE drops no other row of the result. `required`: and so for a condition that is true for a
    missing row, too: no outer join can make its columns NULL."""

    alias: str
    relation: str | None
    filterable: bool
    required: bool
    renamed: bool
    node: Node = field(default_factory=dict)


@dataclass(frozen=True)
class Select:
    """One SELECT: its sources, and the conditions of which all must be true. `pushed`: those of the queries around it
    that hold for its rows, too."""

    node: Node
    sources: tuple[Source, ...]
    conditions: tuple[Node, ...]
    aliases: frozenset[str] = field(default_factory=frozenset)
    pushed: tuple[Node, ...] = ()


def check_calls(tree: Node, own: Collection[str] = ()) -> None:
    """Invalid for anything that reads other data than the tables of the lake, or touches the engine itself.

    `own`: the functions that stand for the statement's searches.
    """
    callable_names = _CALLABLE.union(own)
    every_node = list(nodes(tree))
    common = {name.lower() for node in every_node for name in _common_tables(node)}
    for name in common:
        if name.startswith(_ENGINE_TABLES):  # outside of its scope the name would be the engine's table
            raise Invalid(f"a common table expression cannot be called {name}: give it another name", subject=name)
    for node in every_node:
        kind = node.get("type")
        if kind == "TABLE_FUNCTION":
            name = str(node["function"]["function_name"]).lower()
            if name not in ROW_SOURCES or node["function"].get("schema") or node["function"].get("catalog"):
                raise Invalid(
                    f"{name}(…) is not allowed in FROM: only tables of the lake can be read, not files", subject=name
                )
        elif kind == "BASE_TABLE" and node.get("at_clause"):
            raise Invalid("AT (…) is not supported: write FROM <table> AS OF …")
        elif kind == "BASE_TABLE" and not _is_lake_table(node):
            name = ".".join(
                part for part in (node.get("catalog_name"), node["schema_name"], node["table_name"]) if part
            )
            if node["schema_name"] or node.get("catalog_name") or name.lower() not in common:
                raise Invalid(f"there is no table {name}", subject=name)
        elif kind == "JOIN" and node["ref_type"] == "POSITIONAL":  # over Parquet files DuckDB 2.0 pairs wrong rows
            raise Invalid("POSITIONAL JOIN is not supported: number the rows with row_number() and join by the number")
        elif kind == "SHOW_REF" and node.get("show_type") not in ("SUMMARY", "DESCRIBE"):
            raise Invalid("SHOW is not supported here: write SELECT, or SUMMARIZE")
        elif node.get("class") in _CALLS:
            _check_call(node, callable_names)


def _check_call(node: Node, callable_names: Collection[str]) -> None:
    name = str(node["function_name"])
    if name.lower() not in callable_names:
        raise _no_function(name)
    if node.get("export_state"):
        raise Invalid("EXPORT_STATE is not supported: select the aggregate itself")
    if name.lower() in CALL_BY_NAME:
        _check_named_aggregate(name, node["arguments"])


def _check_named_aggregate(function: str, arguments: Sequence[Node]) -> None:
    """Invalid unless the aggregate's name is a text in the statement, and one that a query may call."""
    if len(arguments) < 2:
        return  # the engine says what it takes
    second = arguments[1]["expression"]
    literal = second["literal"] if second.get("class") == "CONSTANT" else {}
    if literal.get("kind") != "STRING" or any(argument.get("name") for argument in arguments):
        raise Invalid(
            f"{function} takes the aggregate's name as a text in the query: write {function}(…, 'sum')",
            subject=function,
        )
    if str(literal["text"]).lower() not in ALLOWED_FUNCTIONS:
        raise _no_function(str(literal["text"]))


def _no_function(name: str) -> Invalid:
    similar = get_close_matches(name.lower(), ALLOWED_FUNCTIONS, n=1, cutoff=0.8)
    hint = f": did you mean {similar[0]}?" if similar else ""
    return Invalid(f"{name} is not a function that a query may call{hint}", subject=name)


def nodes(tree: Any) -> Iterator[Node]:
    """Every object of the tree, outer ones first."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if type(node) is dict:
            yield node
            stack.extend([child for child in reversed(node.values()) if type(child) is dict or type(child) is list])
        else:
            stack.extend([child for child in reversed(node) if type(child) is dict or type(child) is list])


def selects(every_node: Iterable[Node]) -> Iterator[Select]:
    """Every SELECT of a tree, also within common table expressions and subqueries."""
    for node in every_node:
        if node.get("type") == "SELECT_NODE":
            sources: list[Source] = []
            sampled = node.get("sample") is not None  # the sample is taken before WHERE
            conditions = conjuncts(node.get("where_clause"))
            conditions += _collect(node["from_table"], sources, filterable=not sampled, required=True)
            aliases = frozenset(str(item.get("alias") or "").lower() for item in node["select_list"]) - {""}
            yield Select(node, tuple(sources), tuple(conditions), aliases)


def conjuncts(condition: Node | None) -> list[Node]:
    if condition is None:
        return []
    if condition.get("type") == "CONJUNCTION_AND":
        return [part for child in condition["children"] for part in conjuncts(child)]
    return [condition]


def _collect(source: Node, into: list[Source], *, filterable: bool, required: bool) -> list[Node]:
    """Appends the sources below this item of FROM; returns the conditions of its inner joins, which are as WHERE's."""
    if source["type"] != "JOIN":
        relation = str(source["table_name"]) if _is_lake_table(source) else None
        alias = str(source.get("alias") or source.get("table_name") or "").lower()
        sampled = source.get("sample") is not None
        into.append(
            Source(alias, relation, filterable and not sampled, required, bool(source.get("column_name_alias")), source)
        )
        return []
    kind, join = source["ref_type"], source["join_type"]
    every_row = kind in _EVERY_ROW_JOINS or kind not in ("REGULAR", "CROSS", "NATURAL", "DEPENDENT", *_EVERY_ROW_JOINS)
    left_required = required and join in ("INNER", "LEFT", "SEMI", "ANTI", "MARK")
    right_required = required and join in ("INNER", "RIGHT")
    left_filterable = filterable and not (every_row and kind != "ASOF")
    right_filterable = filterable and not every_row and join in ("INNER", "LEFT", "RIGHT", "OUTER", "FULL")
    conditions = _collect(source["left"], into, filterable=left_filterable, required=left_required)
    conditions += _collect(source["right"], into, filterable=right_filterable, required=right_required)
    if join == "INNER" and kind in ("REGULAR", "CROSS", "NATURAL") and required and filterable:
        return conditions + conjuncts(source.get("condition"))
    return conditions if required and join == "INNER" and not every_row else []


def _is_lake_table(node: Node) -> bool:
    return node.get("type") == "BASE_TABLE" and node["schema_name"] == TABLES_SCHEMA and not node.get("catalog_name")


def _common_tables(node: Node) -> list[str]:
    entries = node["cte_map"].get("map", ()) if isinstance(node.get("cte_map"), dict) else ()
    names = [str(entry["key"]) for entry in entries]
    if node.get("type") in ("RECURSIVE_CTE_NODE", "CTE_NODE"):
        names.append(str(node.get("cte_name") or node.get("ctename") or ""))
    return names


def used_columns(
    every_node: Iterable[Node], relation_aliases: set[str], aliases: set[str], is_column: Callable[[str], bool]
) -> set[str] | None:
    """The names of a relation's columns that the statement may use, in lower case; None for all of them.

    `relation_aliases`: the names under which the statement has the relation; `aliases`: those of all relations. May
    name too many, never too few.
    """
    used: set[str] = set()
    for node in every_node:
        kind, type_ = node.get("class"), node.get("type")
        if kind == "STAR":
            name = str(node.get("relation_name") or "").lower()
            if not name or name in relation_aliases or name not in aliases or node.get("columns"):
                return None
        elif kind == "POSITIONAL_REFERENCE" or type_ in ("PIVOT", "SHOW_REF"):
            return None
        elif type_ == "JOIN" and (node["ref_type"] == "NATURAL" or node.get("using_columns")):
            if node["ref_type"] == "NATURAL":
                return None
            used |= {str(name).lower() for name in node["using_columns"]}
        elif type_ == "BASE_TABLE" and node.get("column_name_alias"):
            return None
        elif kind == "COLUMN_REF":
            parts = [str(name).lower() for name in node["column_names"]]
            if parts[0] in relation_aliases and len(parts) == 1 and not is_column(parts[0]):
                return None  # the whole row
            others = aliases - relation_aliases
            used |= {part for part in parts if is_column(part)} if parts[0] not in others else {parts[0]}
    return used
