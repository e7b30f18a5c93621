"""Row encodings: equal to a plain reference, readable back (so injective), and blind to how the rows are
stored."""

from __future__ import annotations

import gc
import math
import re
import weakref
from decimal import Decimal
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catalog.changes import conform, hashing, key_digests, row_digests, rows_root
from catalog.changes.arrow_buffers import fixed_width
from catalog.changes.encoding import BATCH_ROWS, encode
from catalog.changes.hashing import sha256_all
from catalog.changes.projection import project
from catalog.core.errors import Invalid
from catalog.merkle import tree
from tests.property.changes.reference_encoding import meaning, read_back, reference_row
from tests.property.changes.typed_tables import LONG, SCALARS, named, tables

DOCS = Path(__file__).parents[3] / "docs" / "row-digest.md"


def encodings(table) -> list[bytes]:
    return [value.as_py() for batch in encode(table) for value in batch]


def digests(table) -> list[bytes]:
    return [value.tobytes() for value in row_digests(table)]


@settings(max_examples=400, deadline=None)
@given(tables())
def test_the_encoding_is_the_reference_and_its_digest_a_leaf_hash(made):
    schema, rows, table = made
    expected = [reference_row(schema, row) for row in rows]
    assert encodings(table) == expected
    assert digests(table) == [tree.leaf_hash(encoded[1:]) for encoded in expected]


@settings(max_examples=300, deadline=None)
@given(tables())
def test_an_encoding_can_be_read_back_so_no_two_rows_share_one(made):
    schema, rows, table = made
    kind = pa.struct(list(schema))
    assert [read_back(encoded) for encoded in encodings(table)] == [meaning(kind, row) for row in rows]


@settings(max_examples=150, deadline=None)
@given(tables(), st.data())
def test_chunks_and_slices_do_not_matter(made, data):
    _, rows, table = made
    whole = digests(table)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    pieces = [table.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    assert digests(pa.concat_tables(pieces)) == whole
    assert [digest for piece in pieces for digest in digests(piece)] == whole
    assert digests(table.combine_chunks()) == whole


STORED_OTHERWISE = {
    pa.string(): [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    pa.binary(): [pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int8(), pa.binary())],
    pa.binary(4): [pa.binary(), pa.dictionary(pa.int32(), pa.binary(4))],
    pa.int64(): [pa.dictionary(pa.int32(), pa.int64()), pa.run_end_encoded(pa.int32(), pa.int64())],
    pa.list_(pa.int64()): [pa.large_list(pa.int64())],
}
OTHER_VALUES = {**SCALARS, pa.list_(pa.int64()): st.lists(st.none() | LONG, max_size=3)}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_how_arrow_stores_a_column_does_not_matter(data):
    kind = data.draw(st.sampled_from(list(STORED_OTHERWISE)))
    values = data.draw(st.lists(st.none() | OTHER_VALUES[kind], max_size=5))
    plain = pa.table([pa.array(values, kind)], schema=pa.schema([named("c", kind, 1)]))
    other = data.draw(st.sampled_from(STORED_OTHERWISE[kind]))
    array = plain.column(0).combine_chunks()
    if pa.types.is_run_end_encoded(other):
        array = pc.run_end_encode(array)
    elif pa.types.is_dictionary(other):
        array = array.dictionary_encode()
    else:
        array = pa.array(values, other)
    assert digests(pa.table([array], schema=pa.schema([named("c", array.type, 1)]))) == digests(plain)


PROMOTIONS = [
    (pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.decimal128(9, 2), pa.decimal128(18, 2)),
    (pa.decimal128(9, 2), pa.decimal128(38, 2)),
]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_schema_evolution_keeps_the_digest_of_an_untouched_row(data):
    narrow, wide = data.draw(st.sampled_from(PROMOTIONS))
    rows = data.draw(st.lists(st.fixed_dictionaries({"a": SCALARS[narrow], "b": st.text(max_size=5)}), max_size=4))
    old = pa.Table.from_pylist(rows, schema=pa.schema([named("a", narrow, 1), named("b", pa.string(), 2)]))
    inner = pa.struct([named("later", pa.int64(), 5), named("renamed", wide, 1)])
    new = pa.schema([named("added", pa.string(), 3), named("text", pa.string(), 2), named("renamed", wide, 1)])
    assert digests(project(old, new)) == digests(old)
    nested_old = pa.table(
        [pa.StructArray.from_arrays([old.column("a").combine_chunks()], fields=[named("a", narrow, 1)])],
        schema=pa.schema([named("s", pa.struct([named("a", narrow, 1)]), 9)]),
    )
    nested_new = pa.schema([named("s2", inner, 9)])
    assert digests(project(nested_old, nested_new)) == digests(nested_old)


def row(**columns):
    schema = pa.schema([named(name, kind, at) for at, (name, (kind, _)) in enumerate(columns.items(), 1)])
    return pa.Table.from_pylist([{name: value for name, (_, value) in columns.items()}], schema=schema)


def test_values_that_look_alike_are_kept_apart():
    text, raw, many = pa.string(), pa.binary(), pa.list_(pa.int64())
    alike = [
        row(a=(text, None), b=(text, None)),
        row(a=(text, ""), b=(text, None)),
        row(a=(text, None), b=(text, "")),
        row(a=(text, "ab"), b=(text, "c")),
        row(a=(text, "a"), b=(text, "bc")),
        row(a=(raw, b"ab"), b=(raw, b"c")),
        row(a=(many, [])),
        row(a=(many, [None])),
        row(a=(many, [0])),
        row(a=(pa.int64(), 0)),
        row(a=(pa.bool_(), False)),
        row(a=(pa.float64(), 0.0)),
        row(a=(pa.float64(), -0.0)),
        row(a=(pa.float64(), math.nan)),
        row(a=(pa.date32(), 0)),
        row(a=(pa.timestamp("us"), 0)),
        row(a=(pa.timestamp("us", "UTC"), 0)),
        row(a=(pa.timestamp("ns"), 0)),
        row(a=(pa.decimal128(5, 1), Decimal("1.0"))),
        row(a=(pa.decimal128(5, 2), Decimal("1.00"))),
        row(a=(pa.struct([named("x", text, 7)]), {"x": None})),
        row(a=(pa.struct([named("x", text, 8)]), {"x": "1"})),
        row(a=(pa.map_(text, text), [])),
    ]
    assert len({digests(one)[0] for one in alike}) == len(alike)


@example(0x7FF8000000000001)
@example(0xFFF8000000000000)
@given(st.integers(1, 2**52 - 1).map(lambda payload: 0x7FF0000000000000 | payload))
def test_every_nan_is_the_same_nan(bits):
    odd = pa.array(np.array([bits], dtype=np.uint64).view(np.float64))
    table = pa.table([odd], schema=pa.schema([named("a", pa.float64(), 1)]))
    assert digests(table) == digests(row(a=(pa.float64(), math.nan)))


def test_the_order_of_a_maps_entries_and_of_columns_does_not_matter():
    kind = pa.map_(pa.string(), pa.int64())
    assert digests(row(a=(kind, [("b", 1), ("a", 2)]))) == digests(row(a=(kind, [("a", 2), ("b", 1)])))
    table = row(a=(pa.string(), "x"), b=(pa.int64(), 7))
    assert digests(table.select(["b", "a"])) == digests(table)


def test_the_documents_example_is_what_the_code_gives():
    text = DOCS.read_text()
    encoded, digest = re.search(r"<!-- example -->.*?```\n(.*?)```.*?`([0-9a-f]{64})`", text, re.S).groups()
    schema = pa.schema(
        [named("id", pa.int64(), 1), named("name", pa.string(), 2), named("price", pa.decimal128(9, 2), 4)]
    )
    schema = schema.append(named("note", pa.string(), 5))
    values = {"id": 7, "name": "Ada", "price": Decimal("-0.05"), "note": None}
    expected = bytes.fromhex("".join(line.split("  ")[0] for line in encoded.splitlines()))
    assert encodings(pa.Table.from_pylist([values], schema=schema)) == [expected]
    assert sha256(expected).hexdigest() == digest


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1499, 1500, 1501, 4097, BATCH_ROWS + 1])
def test_the_quick_ways_to_hash_give_what_the_plain_ones_give(count):
    table = pa.table([pa.array(np.arange(count))], schema=pa.schema([named("a", pa.int64(), 1)]))
    plain = [sha256(value).digest() for value in encodings(table)]
    assert digests(table) == plain
    assert rows_root(table) == tree.root(plain)
    assert hashing.Levels(row_digests(table)).root == tree.root(plain)


def test_without_datafusion_the_digests_are_the_same(monkeypatch):
    table = pa.table([pa.array(np.arange(3000))], schema=pa.schema([named("a", pa.int64(), 1)]))
    quick = row_digests(table)
    monkeypatch.setattr(hashing, "_engine", lambda: None)
    assert np.array_equal(row_digests(table), quick)


def test_a_key_digest_is_that_of_the_row_cut_down_to_its_key():
    table = row(a=(pa.int64(), 1), b=(pa.string(), "x"))
    assert np.array_equal(key_digests(table, ["b"]), row_digests(table.select(["b"])))


def test_rows_without_ids_get_them_from_the_schema_by_name():
    wanted = row(a=(pa.int64(), 1), b=(pa.string(), None))
    assert digests(conform(pa.table({"extra": [0], "a": pa.array([1], pa.int32())}), wanted.schema)) == digests(wanted)
    with pytest.raises(Invalid, match="do not fit"):
        conform(pa.table({"a": ["x"]}), wanted.schema)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"a": [1]}), "field id"),
        (
            pa.table([[1], [2]], schema=pa.schema([named("a", pa.int64(), 1), named("b", pa.int64(), 1)])),
            "same",
        ),
        (pa.table([[2**63]], schema=pa.schema([named("a", pa.uint64(), 1)])), "fit"),
        (
            pa.table([pa.array([1], pa.duration("s"))], schema=pa.schema([named("a", pa.duration("s"), 1)])),
            "encoding",
        ),
        (row(a=(pa.list_view(pa.int64()), [1])), "encoding"),
        (row(a=(pa.struct([pa.field("x", pa.int64())]), {"x": 1})), "field id"),
        (
            pa.table([pa.array([1], pa.time64("ns"))], schema=pa.schema([named("a", pa.time64("ns"), 1)])),
            "fit",
        ),
    ],
)
def test_what_has_no_encoding_is_refused(table, reason):
    with pytest.raises(Invalid, match=reason):
        digests(table)


def test_what_was_hashed_is_let_go() -> None:
    """An engine that keeps what it was given would fill a function's memory, commit by commit."""
    raw = np.full((5_000, 64), 7, np.uint8)
    alive = weakref.ref(raw)
    assert len(sha256_all([fixed_width(raw)], len(raw))) == len(raw)
    del raw
    gc.collect()
    assert alive() is None
