"""Validates filters on a vector table before Lance gets them: comparisons of its columns with values, nothing else."""

from __future__ import annotations

from collections.abc import Collection

import sqlglot
from sqlglot import exp

from catalog.core.errors import Invalid

MAX_CHARACTERS = 4000

_ALLOWED = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Neg,
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.Cast,
    exp.DataType, exp.ArrayContains, exp.ArrayContainsAll,
)  # fmt: skip


def checked_filter(text: str, columns: Collection[str]) -> str:
    """The filter in Lance's dialect; Invalid if it is not a condition on these columns."""
    if len(text) > MAX_CHARACTERS:
        raise Invalid(f"the filter has {len(text)} characters, over the limit of {MAX_CHARACTERS}")
    try:
        tree = sqlglot.parse_one(text, read="postgres")
    except sqlglot.errors.SqlglotError as error:
        raise Invalid(f"the filter is not a condition: {str(error).splitlines()[0]}") from None
    for node in tree.walk():
        if isinstance(node, exp.Column):
            if node.table or node.name not in columns:
                raise Invalid(f"the filter names {node.sql()}; it may use {', '.join(sorted(columns))}")
        elif not isinstance(node, _ALLOWED):
            raise Invalid(f"a filter compares columns with values; {node.sql()!r:.80} does something else")
    if not isinstance(tree, (exp.Predicate, exp.Connector, exp.Not, exp.Paren, exp.Boolean)):
        raise Invalid(f"{text!r:.80} is not a condition")
    for column in list(tree.find_all(exp.Column)):
        # Lance accepts no other quotes for names than backticks.
        column.replace(exp.Var(this=f"`{column.name}`"))
    return tree.sql(dialect="postgres")
