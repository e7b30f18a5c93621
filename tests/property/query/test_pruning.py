"""Pruning says only what is certain: a file it leaves out holds no such row, a file it calls whole holds no other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog.query.plan.predicates import And, Bounds, Compare, In, Null, Or, Predicate, Prefix, evaluate, row_mask
from catalog.query.scan import dictionary_columns
from catalog.query.scan.dictionary_columns import decode_dictionaries, filtered

OPS = ("=", "!=", "<", "<=", ">", ">=")
NUMBERS = st.integers(-4, 4)
FLOATS = st.sampled_from([-1.5, 0.5, 2.0, math.inf, -math.inf, math.nan])
TEXTS = st.text("ab", max_size=3)


def atoms(column: str, values: st.SearchStrategy[Any], *, text: bool = False) -> st.SearchStrategy[Predicate]:
    literal = values.filter(lambda value: value == value)
    kinds: list[st.SearchStrategy[Any]] = [
        st.builds(lambda op, value: Compare(column, op, pa.scalar(value)), st.sampled_from(OPS), literal),
        st.builds(lambda some: In(column, tuple(map(pa.scalar, some))), st.lists(literal, min_size=1, max_size=3)),
        st.builds(lambda negated: Null(column, negated), st.booleans()),
    ]
    if text:
        kinds.append(st.builds(lambda start: Prefix(column, start), st.text("ab", min_size=1, max_size=2)))
    return st.one_of(kinds)


ATOMS = st.one_of(atoms("n", NUMBERS), atoms("f", FLOATS), atoms("s", TEXTS, text=True))
PREDICATES = st.recursive(
    ATOMS,
    lambda inner: st.builds(
        lambda kind, parts: kind(tuple(parts)),
        st.sampled_from([And, Or]),
        st.lists(inner, min_size=2, max_size=3),
    ),
    max_leaves=6,
)
ROWS = st.fixed_dictionaries(
    {"n": st.none() | NUMBERS, "f": st.none() | FLOATS, "s": st.none() | TEXTS},
)
FILES = st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=4)


def key(value: Any) -> Any:
    """SQL's order: NaN is equal to itself and above every number; text by its bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def holds(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    """SQL's three values, said over from the standard rather than from the code under test."""
    if isinstance(predicate, And | Or):
        verdicts = [holds(part, row) for part in predicate.parts]
        decisive = isinstance(predicate, Or)
        if decisive in verdicts:
            return decisive
        return None if None in verdicts else not decisive
    value = row[predicate.column]
    if isinstance(predicate, Null):
        return (value is None) != predicate.negated
    if value is None:
        return None
    if isinstance(predicate, Prefix):
        return str(value).startswith(predicate.text)
    if isinstance(predicate, In):
        return any(key(value) == key(one.as_py()) for one in predicate.values)
    mine, other = key(value), key(predicate.value.as_py())
    return bool(
        {"=": mine == other, "!=": mine != other, "<": mine < other, "<=": mine <= other, ">": mine > other}.get(
            predicate.op, mine >= other
        )
    )


def bounds(files: list[list[dict[str, Any]]], column: str, *, stated: bool) -> Bounds:
    """As a writer states them: over what is neither NULL nor NaN; NaN counted only if `stated`."""
    lower, upper = np.empty(len(files), dtype=object), np.empty(len(files), dtype=object)
    known = np.zeros(len(files), dtype=bool)
    nulls, nans = [], []
    for at, file in enumerate(files):
        values = [row[column] for row in file]
        nulls.append(sum(value is None for value in values))
        numbers = [v for v in values if v is not None and v == v]
        nans.append(sum(v is not None and v != v for v in values))
        if numbers:
            ordered = sorted(v.encode() if isinstance(v, str) else v for v in numbers)
            lower[at], upper[at], known[at] = ordered[0], ordered[-1], True
    floats = column == "f"
    return Bounds(
        lower,
        upper,
        known,
        np.array(nulls, dtype=np.int64),
        (np.array(nans, dtype=np.int64) if stated else np.full(len(files), -1)) if floats else None,
        np.array([len(file) for file in files], dtype=np.int64),
        np.full(len(files), column != "s"),
    )


@given(files=FILES, predicate=PREDICATES, stated=st.booleans())
def test_a_verdict_on_a_file_holds_for_each_of_its_rows(files: Any, predicate: Predicate, stated: bool) -> None:
    verdict = evaluate(predicate, lambda column: bounds(files, column, stated=stated), len(files))
    for file, may, every in zip(files, verdict.might_match, verdict.must_match, strict=True):
        truths = [holds(predicate, row) for row in file]
        assert may or True not in truths, "a file that was left out holds a row in question"
        assert not every or all(truths), "a file that was called whole holds a row that is not in question"


SCHEMA = pa.schema([("n", pa.int64()), ("f", pa.float64()), ("s", pa.string())])  # type: ignore[arg-type]


@given(rows=st.lists(ROWS, max_size=12), predicate=PREDICATES)
@example(rows=[{"n": None, "f": math.nan, "s": None}], predicate=Compare("f", ">", pa.scalar(0.5)))
def test_a_mask_of_rows_drops_no_row_in_question(rows: Any, predicate: Predicate) -> None:
    mask = row_mask(predicate, pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    if mask is not None:
        assert all(kept for kept, row in zip(mask.to_pylist(), rows, strict=True) if holds(predicate, row))


@given(rows=st.lists(ROWS, max_size=12), predicate=PREDICATES, most=st.sampled_from([0.0, 0.5, 1.0]))
def test_rows_are_chosen_by_the_codes_of_their_words_as_by_the_words(
    rows: Any, predicate: Predicate, most: float
) -> None:
    plain = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    coded = plain.set_column(2, "s", plain.column("s").dictionary_encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dictionary_columns, "MAX_FILTERED_SHARE", most)
        expected, actual = filtered(plain, predicate), filtered(coded, predicate)
    assert actual.schema == expected.schema and str(actual.to_pylist()) == str(expected.to_pylist())  # NaN is not NaN
    assert str(decode_dictionaries(coded).to_pylist()) == str(plain.to_pylist())


@given(rows=st.lists(ROWS, min_size=1, max_size=12), predicate=PREDICATES)
def test_rows_are_taken_out_only_where_most_of_them_go(rows: Any, predicate: Predicate) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    kept = filtered(batch, predicate).num_rows
    assert kept == len(rows) or kept <= len(rows) * dictionary_columns.MAX_FILTERED_SHARE
