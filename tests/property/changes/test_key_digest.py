"""The key digest of one row, by plain Python, is that of the columnar encoder; a row's encoding is read back."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from hashlib import sha256
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.changes.digest import key_digests, row_digests
from catalog.changes.encoding import encode
from catalog.changes.key_digest import key_digest
from catalog.changes.row_decoding import decode_row

naive = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
KINDS: dict[str, tuple[Any, Any]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), naive),
    "timestamptz": (pa.timestamp("us", "UTC"), naive.map(lambda at: at.replace(tzinfo=UTC))),
    "decimal(9, 2)": (pa.decimal128(9, 2), st.decimals(-9_999_999, 9_999_999, places=2)),
    "string": (pa.string(), st.text(max_size=20)),
    "binary": (pa.binary(), st.binary(max_size=20)),
    "uuid": (pa.binary(16), st.uuids()),
}


def column(name: str, number: int, kind: Any) -> pa.Field[Any]:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


def table_of(kinds: list[str], values: list[Any]) -> pa.Table:
    fields = [column(f"c{at}", at + 3, KINDS[kind][0]) for at, kind in enumerate(kinds)]
    arrow = [value.bytes if isinstance(value, UUID) else value for value in values]
    arrays = [pa.array([value], field.type) for value, field in zip(arrow, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, date | datetime | time) else str(value)


keys = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4).flatmap(
    lambda kinds: st.tuples(st.just(kinds), st.tuples(*(KINDS[kind][1] for kind in kinds)))
)


@settings(max_examples=150, deadline=None)
@given(keys)
def test_a_key_has_the_digest_of_the_columnar_encoder(key: tuple[list[str], tuple[Any, ...]]) -> None:
    kinds, values = key
    table = table_of(kinds, list(values))
    described = [(at + 3, kind) for at, kind in enumerate(kinds)]
    expected = key_digests(table, table.schema.names)[0].tobytes()
    assert key_digest(described, values) == expected
    assert key_digest(described, [as_text(value) for value in values]) == expected


@settings(max_examples=150, deadline=None)
@given(keys)
def test_an_encoding_is_read_back(key: tuple[list[str], tuple[Any, ...]]) -> None:
    kinds, values = key
    table = table_of(kinds, list(values))
    encoding = bytes(next(iter(encode(table)))[0].as_py())
    assert sha256(encoding).digest() == row_digests(table)[0].tobytes()
    decoded = decode_row(encoding)
    expected = [value.bytes if isinstance(value, UUID) else value for value in values]
    assert list(decoded.values()) == expected and list(decoded) == [at + 3 for at in range(len(kinds))]


def test_nested_values_are_read_back() -> None:
    element = pa.field("element", pa.int64(), metadata={b"PARQUET:field_id": b"5"})
    inner = pa.struct([column("x", 7, pa.string()), column("y", 8, pa.float64())])
    schema = pa.schema([column("many", 4, pa.list_(element)), column("one", 6, inner)])
    table = pa.Table.from_pylist([{"many": [1, None, 3], "one": {"x": "ü", "y": -0.5}}], schema)
    encoding = bytes(next(iter(encode(table)))[0].as_py())
    assert decode_row(encoding) == {4: [1, None, 3], 6: {7: "ü", 8: -0.5}}


@given(st.binary(max_size=80))
def test_what_is_no_encoding_is_refused_and_never_crashes(data: bytes) -> None:
    for candidate in (data, b"\0\0\0\0\x0f" + data, b"\0\0\0\0\x0f\0\0\0\0\0\0\0\1\0\0\0\1" + data):
        try:
            row = decode_row(candidate)
        except ValueError:
            continue
        assert isinstance(row, dict)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("long", "4711 "),
        ("long", "04711"),
        ("long", 1.0),
        ("long", True),
        ("int", 2**31),
        ("boolean", "yes"),
        ("date", "2026-02-30"),
        ("date", datetime(2026, 1, 1)),
        ("timestamp", "2026-01-01T00:00:00Z"),
        ("timestamptz", "2026-01-01T00:00:00"),
        ("timestamp", "2026-01-01T00:00:00.1234567"),
        ("decimal(9, 2)", "1.005"),
        ("decimal(9, 2)", 1.5),
        ("decimal(9, 2)", Decimal("NaN")),
        ("string", 7),
        ("fixed[4]", "0011"),
        ("uuid", "no"),
        ("double", 1.5),
        ("list<int>", "1"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a value of type|cannot be a key"):
        key_digest([(1, kind)], [value])
