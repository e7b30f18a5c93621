"""Row encodings: equal to a plain reference, readable back (so injective), and blind to how the rows are
stored."""

from __future__ import annotations

import gc
import math
import re
import struct
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
from catalog.changes.buffers import fixed_width
from catalog.changes.encoding import BATCH_ROWS, encode
from catalog.changes.hashing import sha256_each
from catalog.changes.multiset import RowsDigest
from catalog.changes.projection import project
from catalog.errors import Invalid
from catalog.merkle import tree

DOCS = Path(__file__).parents[2] / "docs" / "row-digest.md"

# The reference: docs/row-digest.md, written down for one value at a time. Times and dates are integers here.

NAN = bytes.fromhex("7ff8000000000000")


def number(value: int, width: int = 8) -> bytes:
    return value.to_bytes(width, "big", signed=value < 0)


def reference_value(kind, value) -> tuple[int, bytes, bytes]:
    """(tag, slot, payload)"""
    types = pa.types
    if value is None:
        return 0, bytes(8), b""
    if types.is_boolean(kind):
        return 1, number(int(value)), b""
    if types.is_integer(kind):
        return 2, number(value), b""
    if types.is_floating(kind):
        return 3, NAN if math.isnan(value) else struct.pack(">d", value), b""
    if types.is_decimal(kind):
        sign, digits, _ = value.as_tuple()
        text = b"-" * sign + (b"".join(b"%d" % digit for digit in digits).lstrip(b"0") or b"0")
        text = b"0" if text == b"-0" else text
        return 4, number(kind.scale, 4) + number(len(text), 4), text
    if types.is_date(kind):
        return 5, number(value), b""
    if types.is_time(kind):
        return 6, number(value), b""
    if types.is_timestamp(kind):
        return 7 + (kind.tz is not None) + 2 * (kind.unit == "ns"), number(value), b""
    if types.is_string(kind):
        return 11, number(len(value.encode())), value.encode()
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return 12, number(len(value)), value
    if types.is_list(kind):
        return 13, number(len(value)), b"".join(reference_item(kind.value_type, item) for item in value)
    if types.is_map(kind):
        pairs = [reference_item(kind.key_type, k) + reference_item(kind.item_type, v) for k, v in value]
        return 14, number(len(value)), b"".join(sorted(pairs))
    assert types.is_struct(kind)
    return reference_struct(kind, value)


def reference_item(kind, value) -> bytes:
    tag, slot, payload = reference_value(kind, value)
    return bytes([tag]) + slot + payload


def reference_struct(fields, row) -> tuple[int, bytes, bytes]:
    directory, payloads, count = b"", b"", 0
    for field in sorted(fields, key=lambda field: int(field.metadata[b"PARQUET:field_id"])):
        if row[field.name] is not None:
            tag, slot, payload = reference_value(field.type, row[field.name])
            directory += number(int(field.metadata[b"PARQUET:field_id"]), 4) + bytes([tag]) + slot
            payloads += payload
            count += 1
    return 15, number(count), directory + payloads


def reference_row(schema, row) -> bytes:
    tag, slot, payload = reference_struct(schema, row)
    return bytes(4) + bytes([tag]) + slot + payload


class Bytes:
    """Reads an encoding back. What two rows have in common here, they have in common as values."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        assert self.at + count <= len(self.data)
        self.at += count
        return self.data[self.at - count : self.at]

    def item(self):
        tag, slot = self.take(1)[0], self.take(8)
        return (tag, self.payload(tag, slot)) if tag else None

    def payload(self, tag: int, slot: bytes):
        size = int.from_bytes(slot, "big")
        if tag == 4:
            return int.from_bytes(slot[:4], "big"), self.take(int.from_bytes(slot[4:], "big"))
        if tag in (11, 12):
            return self.take(size)
        if tag == 13:
            return [self.item() for _ in range(size)]
        if tag == 14:
            return [(self.item(), self.item()) for _ in range(size)]
        if tag == 15:
            entries = [(self.take(4), self.take(1)[0], self.take(8)) for _ in range(size)]
            return {number: (tag, self.payload(tag, slot)) for number, tag, slot in entries}
        return slot


def read_back(data: bytes):
    found = Bytes(data)
    assert found.take(4) == bytes(4)
    value = found.item()
    assert found.at == len(data)
    return value


def meaning(kind, value):
    """What `read_back` should find, said without an encoding."""
    types = pa.types
    if value is None:
        return None
    tag, slot, payload = reference_value(kind, value)
    if types.is_decimal(kind):
        return tag, (kind.scale, payload)
    if types.is_list(kind):
        return tag, [meaning(kind.value_type, item) for item in value]
    if types.is_map(kind):
        pairs = [(k, v) for _, k, v in sorted((reference_item(kind.key_type, k), k, v) for k, v in value)]
        return tag, [(meaning(kind.key_type, k), meaning(kind.item_type, v)) for k, v in pairs]
    if types.is_struct(kind):
        numbers = {field.name: number(int(field.metadata[b"PARQUET:field_id"]), 4) for field in kind}
        found = {numbers[field.name]: meaning(field.type, value[field.name]) for field in kind}
        return tag, {key: held for key, held in found.items() if held is not None}
    return tag, payload if tag in (11, 12) else slot


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


@settings(max_examples=100, deadline=None)
@given(tables(), st.data())
def test_the_multiset_digest_is_eight_sums_of_the_rows_digests_whatever_their_order(made, data):
    schema, rows, table = made
    lanes = [struct.unpack(">8I", sha256(reference_row(schema, row)).digest()) for row in rows]
    found = RowsDigest.of(table)
    assert (found.rows, found.sums) == (len(rows), tuple(sum(lane) for lane in zip(*lanes, strict=True)) or (0,) * 8)
    assert found.hex == sha256(f"{len(rows)}:{','.join(map(str, found.sums))}".encode()).hexdigest()
    cut = data.draw(st.integers(0, len(rows)))
    assert RowsDigest.sum(map(RowsDigest.of, [table.slice(cut), table.slice(0, cut)])) == found
    assert RowsDigest.parse(found.named) == found


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
    assert len(sha256_each(fixed_width(raw))) == len(raw)
    del raw
    gc.collect()
    assert alive() is None
