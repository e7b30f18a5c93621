"""Rows digested on their way through Spark have the digests they have in Arrow: every type Spark has, and its edge
values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Observation

from catalog.changes.multiset import RowsDigest
from spark_jobs.proof import digest, observed_digest, with_digest

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


@pytest.fixture(scope="module")
def session(spark):
    """The package's Spark, with settings of its own: many batches of few rows, so that sums are put together."""
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "3")
    return session


def both(session, table: pa.Table) -> tuple[RowsDigest, RowsDigest]:
    """In a pass of their own, and while they flow elsewhere."""
    # pyspark takes wall times for the session's own zone; as text they arrive untouched.
    texts = pa.array([None if value is None else value.isoformat(" ") for value in table["wall"].to_pylist()])
    frame = session.createDataFrame(table.set_column(table.schema.get_field_index("wall"), "wall", texts))
    frame = frame.withColumn("wall", frame.wall.cast("timestamp_ntz"))
    observed = Observation()
    flowing = with_digest(frame, table.schema, observed)
    assert flowing.columns == frame.columns
    assert len(flowing.collect()) == table.num_rows
    return digest(frame, table.schema), observed_digest(observed)


@pytest.mark.parametrize(("zone", "ansi"), [("UTC", "true"), ("Europe/Berlin", "false")])
def test_spark_digests_every_type_as_arrow_does(session, zone, ansi):
    session.conf.set("spark.sql.session.timeZone", zone)
    session.conf.set("spark.sql.ansi.enabled", ansi)
    rows = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    expected = RowsDigest.of(rows)
    assert both(session, rows) == (expected, expected)
    assert RowsDigest.of(rows.slice(1)) != expected


INSTANTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
INNERS = st.none() | st.fixed_dictionaries(
    {"x": st.none() | st.integers(-(2**31), 2**31 - 1), "y": st.none() | st.text(max_size=3)}
)
LONGS = st.integers(-(2**63), 2**63 - 1)
RANDOM = st.fixed_dictionaries(
    {
        name: st.none() | values
        for name, values in {
            "flag": st.booleans(),
            "small": st.integers(-(2**31), 2**31 - 1),
            "big": LONGS,
            "single": st.floats(width=32),
            "double": st.floats(),
            "money": st.decimals("-9999999.99", "9999999.99", places=2),
            "tiny": st.decimals("-99999999999999999999", "99999999999999999999", places=18),
            "day": st.dates(),
            "wall": INSTANTS,
            "instant": INSTANTS.map(lambda at: at.replace(tzinfo=UTC)),
            "text": st.text(max_size=8),
            "raw": st.binary(max_size=8),
            "odd `name`": st.text(max_size=3),
            "numbers": st.lists(st.none() | LONGS, max_size=3),
            "inner": INNERS,
            "nested": st.lists(INNERS, max_size=3),
            "pairs": st.dictionaries(st.text(max_size=3), st.none() | st.floats(), max_size=3),
        }.items()
    }
)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(RANDOM, min_size=1, max_size=30))
def test_spark_digests_random_rows_as_arrow_does(session, rows):
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    expected = RowsDigest.of(table)
    assert both(session, table) == (expected, expected)


def test_no_rows_have_a_digest(session):
    assert both(session, SCHEMA.empty_table()) == (RowsDigest(), RowsDigest())


def test_a_uuid_is_text_in_spark_and_sixteen_bytes_in_arrow_however_deep(session):
    uuid = pa.uuid()
    schema = pa.schema(
        [
            field("id", uuid, 1),
            field("ids", pa.list_(field("element", uuid, 3)), 2),
            field("held", pa.struct([field("id", uuid, 5), field("n", pa.int64(), 6)]), 4),
            field("of", pa.map_(field("key", uuid, 8).with_nullable(False), field("value", uuid, 9)), 7),
        ]
    )
    one = UUID(UUID_TEXT).bytes
    stored = pa.table(
        [
            pa.array([one, None], uuid),
            pa.array([[one, None], []], pa.list_(schema.field("ids").type.value_field.with_type(pa.binary(16)))),
            pa.StructArray.from_arrays(
                [pa.array([one, None], pa.binary(16)), pa.array([1, 2])],
                fields=[field("id", pa.binary(16), 5), field("n", pa.int64(), 6)],
            ),
            pa.array([[(one, None)], None], pa.map_(pa.binary(16), pa.binary(16))),
        ],
        schema=pa.schema(
            [
                field("id", uuid, 1),
                field("ids", pa.list_(field("element", pa.binary(16), 3)), 2),
                field("held", pa.struct([field("id", pa.binary(16), 5), field("n", pa.int64(), 6)]), 4),
                field("of", pa.map_(pa.binary(16), pa.binary(16)), 7),
            ]
        ),
    )
    text = UUID_TEXT
    frame = session.createDataFrame(
        [(text, [text, None], (text, 1), {text: None}), (None, [], (None, 2), None)],
        "id string, ids array<string>, held struct<id string, n bigint>, of map<string, string>",
    )
    assert digest(frame, schema) == RowsDigest.of(stored)
