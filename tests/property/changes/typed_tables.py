"""Tables of every type that rows are encoded from, with field ids, of Hypothesis' making."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

# What rows are made of.

LONG = st.integers(-(2**63), 2**63 - 1)


def decimals(precision: int, scale: int):
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda unscaled: Decimal(unscaled).scaleb(-scale))


SCALARS = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): LONG,
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(9, 2): decimals(9, 2),
    pa.decimal128(18, 0): decimals(18, 0),
    pa.decimal128(38, 20): decimals(28, 20),
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
    pa.time64("us"): st.integers(0, 86_400_000_000 - 1),
    pa.timestamp("us"): LONG,
    pa.timestamp("us", "UTC"): LONG,
    pa.timestamp("ns"): LONG,
    pa.timestamp("ns", "Asia/Kolkata"): LONG,
    pa.string(): st.text(max_size=12),
    pa.binary(): st.binary(max_size=12),
    pa.binary(4): st.binary(min_size=4, max_size=4),
}


@st.composite
def typed(draw, ids, depth: int = 2):
    """An Arrow type and a strategy for its values; struct fields get fresh ids."""
    kind = draw(st.sampled_from(["scalar"] * 5 + (["list", "map", "struct"] if depth else [])))
    if kind == "scalar":
        found = draw(st.sampled_from(list(SCALARS)))
        return found, SCALARS[found]
    if kind == "list":
        inner, values = draw(typed(ids, depth - 1))
        return pa.list_(inner), st.lists(st.none() | values, max_size=3)
    if kind == "map":
        key = draw(st.sampled_from([pa.int64(), pa.string()]))
        inner, values = draw(typed(ids, depth - 1))
        return pa.map_(key, inner), st.dictionaries(SCALARS[key], st.none() | values, max_size=3).map(
            lambda found: list(found.items())
        )
    fields, children = [], {}
    for at in range(draw(st.integers(1, 3))):
        inner, values = draw(typed(ids, depth - 1))
        fields.append(named(f"f{at}", inner, draw(fresh(ids))))
        children[f"f{at}"] = st.none() | values
    return pa.struct(fields), st.fixed_dictionaries(children)


@st.composite
def fresh(draw, ids):
    number = draw(st.integers(1, 2**31 - 1).filter(lambda number: number not in ids))
    ids.add(number)
    return number


def named(name: str, kind, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


@st.composite
def tables(draw):
    """(schema with ids, rows as plain values, the same as Arrow)"""
    ids, fields, values = set(), [], {}
    for at in range(draw(st.integers(1, 4))):
        kind, strategy = draw(typed(ids))
        fields.append(named(f"c{at}", kind, draw(fresh(ids))))
        values[f"c{at}"] = st.none() | strategy
    rows = draw(st.lists(st.fixed_dictionaries(values), max_size=6))
    schema = pa.schema(fields)
    return schema, rows, pa.Table.from_pylist(rows, schema=schema)
