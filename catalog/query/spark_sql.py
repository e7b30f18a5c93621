"""A query in Spark's SQL that gives the same rows. What is not known to mean the same there is refused, never guessed.

The tree is qualified and typed with the tables' own columns first: whether `a / b` divides whole numbers is a matter of
types, not of spelling. What each construct becomes is in spark_rewrites. Nothing here needs Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from catalog.errors import Invalid
from catalog.query.engine import Parameters
from catalog.query.planning import Plan, View
from catalog.query.spark_relations import SparkRelation, spark_relation
from catalog.query.spark_rewrites import Different, check_shape, rewrite_types, rewrite_values
from catalog.query.statement import DIALECT

_VIEW = "strandline_r"


def translate(plan: Plan) -> tuple[str, tuple[SparkRelation, ...]]:
    """The plan's text for Spark, and the relations it reads. Invalid when Spark would not give the same rows."""
    relations = tuple(
        spark_relation(placed.bound.relation, f"{_VIEW}{number}") for number, placed in enumerate(plan.placed)
    )
    behind = {(one.database, one.table): relation for one, relation in zip(plan.placed, relations, strict=True)}
    try:
        tree = sqlglot.parse_one(plan.text, read=DIALECT)
        check_shape(tree)
        tree = _named(tree, behind, plan.views)
        tree = _bound(tree, plan.parameters)
        return _generated(tree, relations, exact_decimals=plan.exact_decimals), relations
    except Different as error:
        raise Invalid(f"the query cannot run on Spark: {error}", subject="route") from None
    except SqlglotError as error:
        said = " ".join(str(error).split())[:300]
        raise Invalid(f"the query cannot be put into Spark's SQL: {said}", subject="route") from None


def _generated(tree: exp.Expr, relations: Sequence[SparkRelation], *, exact_decimals: bool) -> str:
    columns: dict[str, object] = {
        one.view: {name: exp.DataType.build(kind, dialect="spark") for name, kind in one.columns.items()}
        for one in relations
    }
    schema = MappingSchema(columns, dialect=DIALECT, normalize=False)
    tree = qualify(tree, schema=schema, dialect=DIALECT, validate_qualify_columns=True, quote_identifiers=True)
    tree = rewrite_types(annotate_types(tree, schema=schema, dialect=DIALECT), exact_decimals=exact_decimals)
    tree = rewrite_values(annotate_types(tree, schema=schema, dialect=DIALECT))
    return tree.sql("spark", identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)


def _named(tree: exp.Expr, behind: Mapping[tuple[str, str], SparkRelation], views: Sequence[View]) -> exp.Expr:
    """Every table by its view's name; a table with rules as the query that stands in front of it."""
    fronts = {(view.database, view.table): view.sql for view in views}
    for node in list(tree.find_all(exp.Table)):
        if not isinstance(node.this, exp.Identifier):
            raise Different(f"{node.this.sql(DIALECT)[:60]} cannot stand in FROM there")
        if not node.db:
            continue  # a common table: tables of the lake have their database by now
        place = (_folded(node.args["db"]), _folded(node.this))
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(place[1], quoted=True))
        if place in fronts:
            inner = _named(sqlglot.parse_one(fronts[place], read=DIALECT), behind, ())
            node.replace(exp.Subquery(this=inner, alias=alias))
        else:
            node.replace(exp.Table(this=exp.to_identifier(behind[place].view, quoted=True), alias=alias))
    for column in list(tree.find_all(exp.Column)):
        if column.args.get("db") is not None:  # `silver.tides.metres`: the table is known by its own name now
            column.set("db", None)
    return tree


def _bound(tree: exp.Expr, parameters: Parameters) -> exp.Expr:
    """Parameters as literals: their values are nodes of the tree, never text that is pasted in."""
    given: dict[str, Any] = {}
    if isinstance(parameters, Mapping):
        given = {str(name): value for name, value in parameters.items()}
    elif parameters is not None:
        given = {str(number): value for number, value in enumerate(parameters, 1)}
    for node in list(tree.find_all(exp.Parameter)):
        node.replace(literal(given[node.name or str(node.this)]))
    return tree


def literal(value: Any) -> exp.Expr:
    """A value as a typed literal."""
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, int):
        number = exp.cast(exp.Literal.number(abs(value)), "bigint")
        return exp.Paren(this=exp.Neg(this=number)) if value < 0 else number
    if isinstance(value, float):
        return exp.cast(exp.Literal.string(repr(value)), "double")
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, Decimal) and value.is_finite():
        return exp.cast(exp.Literal.string(format(value, "f")), "decimal(38, 18)")
    if isinstance(value, datetime):
        kind = "timestamp" if value.tzinfo is None else "timestamptz"
        return exp.cast(exp.Literal.string(value.isoformat(sep=" ")), kind, dialect=DIALECT)
    if isinstance(value, date):
        return exp.cast(exp.Literal.string(value.isoformat()), "date")
    raise Different(f"a parameter of type {type(value).__name__} has no literal there")


def _folded(name: exp.Identifier) -> str:
    return str(name.this) if name.quoted else str(name.this).lower()
