"""Spark SQL gives the same row encoding as Arrow, byte for byte, for every type Spark has and its edge
values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from catalog.changes.digest import row_digests
from catalog.changes.encoding import encode
from catalog.changes.spark import spark_digest, spark_expression
from catalog.errors import Invalid

pytestmark = pytest.mark.xdist_group("spark")

NAIVE = datetime(1970, 1, 1)
UUID_TEXT = "f79c3e09-677c-4bbd-a479-3f349cb785e7"


def field(name: str, kind, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


INNER = pa.struct([field("y", pa.string(), 41), field("x", pa.int32(), 40)])
SCHEMA = pa.schema(
    [
        field("flag", pa.bool_(), 2),
        field("small", pa.int32(), 1),
        field("big", pa.int64(), 3),
        field("single", pa.float32(), 4),
        field("double", pa.float64(), 5),
        field("money", pa.decimal128(9, 2), 6),
        field("tiny", pa.decimal128(38, 18), 7),
        field("day", pa.date32(), 8),
        field("wall", pa.timestamp("us"), 9),
        field("instant", pa.timestamp("us", "UTC"), 10),
        field("text", pa.string(), 11),
        field("raw", pa.binary(), 12),
        field("odd `name`", pa.string(), 16777217),
        field("numbers", pa.list_(field("element", pa.int64(), 21)), 20),
        field("inner", INNER, 30),
        field("nested", pa.list_(field("element", INNER, 51)), 50),
        field(
            "pairs",
            pa.map_(field("key", pa.string(), 61).with_nullable(False), field("value", pa.float64(), 62)),
            60,
        ),
    ]
)
FULL = {
    "flag": True,
    "small": -1,
    "big": 2**63 - 1,
    "single": 0.1,
    "double": 0.1,
    "money": Decimal("-1234567.89"),
    "tiny": Decimal("0.000000000000000001"),
    "day": date(1969, 12, 31),
    "wall": NAIVE + timedelta(days=-1, microseconds=1),
    "instant": datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC),
    "text": "äé漢😀\x00",
    "raw": b"\x00\xff",
    "odd `name`": "x",
    "numbers": [1, None, -(2**63)],
    "inner": {"x": 1, "y": ""},
    "nested": [{"x": 2, "y": None}, None, {"x": None, "y": None}],
    "pairs": {"b": 1.5, "a": None, "": -0.0, "aa": float("inf")},
}
EDGES = [
    {"flag": False, "small": 0, "big": -(2**63), "double": 0.0, "single": 0.0, "money": Decimal("0.00")},
    {
        "double": -0.0,
        "single": -0.0,
        "tiny": Decimal("0E-18"),
        "text": "",
        "raw": b"",
        "numbers": [],
        "pairs": {},
    },
    {"double": float("nan"), "single": float("nan"), "nested": [], "inner": {"x": None, "y": None}},
    {"double": float("inf"), "single": float("-inf"), "money": Decimal("0.05"), "day": date(1, 1, 1)},
    {"double": 5e-324, "single": 1e-45, "money": Decimal("-0.05"), "day": date(9999, 12, 31)},
    {
        "double": -2.2250738585072014e-308,
        "single": 3.4028234663852886e38,
        "tiny": Decimal("-12345678901234567890.5"),
    },
    {"double": 1.7976931348623157e308, "tiny": Decimal("0.000000000000123456"), "wall": datetime(1, 1, 1)},
    {
        "double": 1.0,
        "wall": datetime(9999, 12, 31, 23, 59, 59, 999999),
        "instant": datetime(1960, 1, 1, tzinfo=UTC),
    },
    {
        "wall": datetime(2026, 3, 29, 2, 30),
        "numbers": [None],
        "nested": [None],
    },  # an hour Berlin skips that day
    {},
]
ROWS = [FULL, *(dict.fromkeys(FULL) | edge for edge in EDGES)]


@pytest.fixture
def session(spark):
    """The package's Spark, with settings of its own."""
    return spark.newSession()


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_spark_encodes_every_type_as_arrow_does(session, zone, ansi):
    session.conf.set("spark.sql.session.timeZone", zone)
    session.conf.set("spark.sql.ansi.enabled", ansi)
    rows = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    # pyspark takes wall times for the session's own zone; as text they arrive untouched.
    texts = pa.array([None if row["wall"] is None else row["wall"].isoformat(" ") for row in ROWS])
    frame = session.createDataFrame(rows.set_column(rows.schema.get_field_index("wall"), "wall", texts))
    frame = frame.withColumn("wall", frame.wall.cast("timestamp_ntz"))
    answer = frame.selectExpr(f"{spark_expression(SCHEMA)} AS encoded", f"{spark_digest(SCHEMA)} AS digest").collect()
    expected = [value.as_py() for batch in encode(rows) for value in batch]
    for row, found, wanted in zip(ROWS, answer, expected, strict=True):
        assert bytes(found.encoded).hex() == wanted.hex(), row
    assert [bytes(found.digest) for found in answer] == [value.tobytes() for value in row_digests(rows)]


def test_a_uuid_is_text_in_spark_and_sixteen_bytes_in_arrow(session):
    schema = pa.schema([field("id", pa.uuid(), 1)])
    storage = pa.array([bytes.fromhex(UUID_TEXT.replace("-", "")), None], pa.binary(16))
    rows = pa.table([pa.ExtensionArray.from_storage(pa.uuid(), storage)], schema=schema)
    frame = session.createDataFrame([(UUID_TEXT,), (None,)], "id string")
    answer = frame.selectExpr(f"{spark_expression(schema)} AS encoded").collect()
    assert [bytes(found.encoded) for found in answer] == [value.as_py() for batch in encode(rows) for value in batch]


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.timestamp("ns"), pa.timestamp("ns", "UTC")])
def test_types_that_spark_has_not_are_refused(kind):
    with pytest.raises(Invalid, match="Spark"):
        spark_expression(pa.schema([field("t", kind, 1)]))
