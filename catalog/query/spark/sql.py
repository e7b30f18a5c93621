"""Translates a query to Spark SQL that gives the same rows. Rejects what is not known to mean the same in Spark.

The tree is first qualified and typed with the tables' columns: whether `a / b` divides integers depends on types, not
on the text. `rewrites` translates expressions, `shapes` clauses. Does not need Spark.
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

from catalog.core.errors import Invalid
from catalog.query.plan.planning import Plan
from catalog.query.plan.relation_names import View
from catalog.query.run.engine import Parameters, parameters_by_name, quote_identifier
from catalog.query.spark.nodes import NotEquivalent
from catalog.query.spark.relations import SparkRelation, spark_relation
from catalog.query.spark.rewrites import check_functions, rewrite_divisions, rewrite_types, rewrite_values
from catalog.query.spark.shapes import JoinedInPlace, add_grand_totals, check_shape, order_distinct, rewrite_groupings
from catalog.query.sql.dialect import DIALECT
from catalog.query.sql.search_operators import folded

_VIEW_PREFIX = "strandline_r"


def translate(plan: Plan) -> tuple[str, tuple[SparkRelation, ...]]:
    """The plan as Spark SQL, and the relations it reads. Invalid when Spark is not known to give the same rows."""
    relations = tuple(
        spark_relation(planned.bound.relation, f"{_VIEW_PREFIX}{number}")
        for number, planned in enumerate(plan.relations)
    )
    by_name = {
        (planned.database, planned.table): relation for planned, relation in zip(plan.relations, relations, strict=True)
    }
    try:
        tree = sqlglot.parse_one(plan.text, read=DIALECT)
        check_shape(tree)
        tree = _replace_tables(tree, by_name, plan.views)
        tree = check_functions(_replace_parameters(tree, plan.parameters))
        return _generate(tree, relations), relations
    except NotEquivalent as error:
        raise Invalid(f"the query cannot run on Spark: {error}", subject="route") from None
    except SqlglotError as error:
        reason = " ".join(str(error).split())[:300]
        raise Invalid(f"the query cannot be translated to Spark SQL: {reason}", subject="route") from None


def _generate(tree: exp.Expr, relations: Sequence[SparkRelation]) -> str:
    columns: dict[str, object] = {
        relation.view: {name: exp.DataType.build(kind, dialect="spark") for name, kind in relation.columns.items()}
        for relation in relations
    }
    schema = MappingSchema(columns, dialect=JoinedInPlace)
    tree = qualify(tree, schema=schema, dialect=JoinedInPlace, validate_qualify_columns=True, quote_identifiers=True)
    tree = rewrite_divisions(annotate_types(rewrite_groupings(tree), schema=schema, dialect=DIALECT))
    tree = rewrite_types(annotate_types(tree, schema=schema, dialect=DIALECT))
    tree = add_grand_totals(rewrite_values(annotate_types(tree, schema=schema, dialect=DIALECT)))
    tree = order_distinct(tree)
    return tree.sql("spark", identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)


def _replace_tables(
    tree: exp.Expr, by_name: Mapping[tuple[str, str], SparkRelation], views: Sequence[View]
) -> exp.Expr:
    """Replaces each table by its Spark view, and a table with access rules by its masking query."""
    masking = {tuple(view.name.split(".", 1)): view for view in views}
    for node in list(tree.find_all(exp.Table)):
        if not isinstance(node.this, exp.Identifier):
            raise NotEquivalent(f"{node.this.sql(DIALECT)[:60]} is not supported in FROM")
        if not node.db:
            continue  # a common table expression: tables of the lake have a database here
        name = (folded(node.args["db"]), folded(node.this))
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name[1], quoted=True))
        if name in masking:
            source = ".".join(map(quote_identifier, name))
            inner = _replace_tables(sqlglot.parse_one(masking[name].sql(source), read=DIALECT), by_name, ())
            node.replace(exp.Subquery(this=inner, alias=alias))
        else:
            node.replace(exp.Table(this=exp.to_identifier(by_name[name].view, quoted=True), alias=alias))
    for column in list(tree.find_all(exp.Column)):
        if column.args.get("db") is not None:  # `silver.tides.metres`: the table now has an alias without a database
            column.set("db", None)
    return tree


def _replace_parameters(tree: exp.Expr, parameters: Parameters) -> exp.Expr:
    """Replaces parameters by literals: nodes of the tree, never text inserted into SQL."""
    values = parameters_by_name(parameters)
    for node in list(tree.find_all(exp.Parameter)):
        node.replace(literal(values[node.name or str(node.this)]))
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
    raise NotEquivalent(f"a parameter of type {type(value).__name__} has no literal in Spark SQL")
