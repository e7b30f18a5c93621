"""The type of a column, from all of its rows: exact or text, and the reason. Expectations are written by hand."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.formats import CsvOptions, FileRejected, FormatLimits, read_rows
from tests.worlds.row_files import read_file

LONG, DOUBLE, TEXT, DAY = pa.int64(), pa.float64(), pa.string(), pa.date32()
STAMP, ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")


def column(values: list[str], **options: Any) -> tuple[pa.DataType, list[Any], str | None]:
    """The type, the values and the doubt of a CSV column `c` beside another."""
    sink = io.StringIO()
    csv.writer(sink).writerows([["c", "row"], *([value, str(n)] for n, value in enumerate(values))])
    file = read_file("a.csv", sink.getvalue().encode(), **options)
    return file.schema.field("c").type, [row["c"] for row in file.rows], file.columns["c"].doubt


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["1", "-2", "0"], LONG, [1, -2, 0]),
        (["9223372036854775807", "1"], LONG, [2**63 - 1, 1]),
        (["9223372036854775808", "1"], pa.decimal128(38, 0), [2**63, 1]),
        (["1.5", "2", "-0.25"], DOUBLE, [1.5, 2.0, -0.25]),
        (["12.50", "3.00", "0.99"], pa.decimal128(18, 2), [Decimal("12.50"), Decimal("3.00"), Decimal("0.99")]),
        (["12.5", "3.0"], DOUBLE, [12.5, 3.0]),
        (["3.14", "2.71"], DOUBLE, [3.14, 2.71]),
        (["1.50", "2.125"], DOUBLE, [1.5, 2.125]),
        (["12345678901234567.50"], pa.decimal128(38, 2), [Decimal("12345678901234567.50")]),
        (["1e3", "2.5E-3"], DOUBLE, [1000.0, 0.0025]),
        (["true", "FALSE"], pa.bool_(), [True, False]),
        (["2026-02-28", "2024-02-29"], DAY, [date(2026, 2, 28), date(2024, 2, 29)]),
        (["2026/2/8", "2026/12/31"], DAY, [date(2026, 2, 8), date(2026, 12, 31)]),
        (["2026.02.08"], DAY, [date(2026, 2, 8)]),
        (["13/04/2026", "01/02/2026"], DAY, [date(2026, 4, 13), date(2026, 2, 1)]),
        (["04/13/2026", "01/02/2026"], DAY, [date(2026, 4, 13), date(2026, 1, 2)]),
        (["31.12.2025", "1.2.2026"], DAY, [date(2025, 12, 31), date(2026, 2, 1)]),
        (["3 Apr 2026", "12 December 2025"], DAY, [date(2026, 4, 3), date(2025, 12, 12)]),
        (["Apr 3, 2026"], DAY, [date(2026, 4, 3)]),
        (["2026-01-02 03:04", "2026-01-02T03:04:05.678"], STAMP,
         [datetime(2026, 1, 2, 3, 4), datetime(2026, 1, 2, 3, 4, 5, 678000)]),
        (["13/04/2026 9:05", "01/02/2026 23:59"], STAMP, [datetime(2026, 4, 13, 9, 5), datetime(2026, 2, 1, 23, 59)]),
        (["04/13/2026 12:30:00 AM", "04/01/2026 01:05:09 PM"], STAMP,
         [datetime(2026, 4, 13, 0, 30), datetime(2026, 4, 1, 13, 5, 9)]),
        (["2026-01-02T03:04:05Z", "2026-01-02T03:04:05+02:00", "2026-01-02 03:04 UTC"], ZONED,
         [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC),
          datetime(2026, 1, 2, 3, 4, tzinfo=UTC)]),
        (["", "", ""], TEXT, [None, None, None]),
    ],
)  # fmt: skip
def test_a_column_has_one_exact_type(values: list[str], kind: pa.DataType, expected: list[Any]) -> None:
    assert column(values) == (kind, expected, None if any(values) else "no row has a value: it is text until one has")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["007", "12"], "leading zeros"),
        (["+49", "12"], "plus sign"),
        (["1,234.50", "2.50"], "other marks"),
        (["3,5", "4,25"], "--csv decimal=,"),
        (["1'000", "2'000"], "other marks"),
        (["01/02/2026", "03/04/2026"], "--csv dates=dmy"),
        (["13/04/2026", "04/13/2026"], "only be first, in others only second"),
        (["01/02/26"], "century"),
        (["2026-01-01", "01/13/2026"], "written in 2 ways"),
        (["2026-01-01", "2026-01-01 10:00"], "1 of 2 values are a date, and '2026-01-01 10:00' in row 3 is not"),
        (["2026-01-01T10:00Z", "2026-01-01T10:00"], "'2026-01-01T10:00Z' in row 2 is not"),
        (["2026-02-30", "2026-02-28", "2026-02-27"], "2 of 3 values are a date, and '2026-02-30' in row 2"),
        (["2026-01-01 24:00", "2026-01-01 23:00"], "'2026-01-01 24:00' in row 2 is not"),
        (["2026-01-01T10:00:00.123456789"], None),
        (["10:30", "11:45"], "times of day"),
        (["10:30:00", "26:45:10"], "durations"),
        (["1", "NA", "3"], "set `--csv nulls=NA`"),
        (["1", "2", "", "x"], "2 of 3 values are a number, and 'x' in row 5 is not"),
        (["$5.00", "$6"], "unit"),
        (["12%"], "unit"),
        (["1" * 39], "39 digits"),
        (["1e400"], "too large"),
        (["yes", "no"], None),
        (["0x1F"], None),
        (["nan", "1"], "nulls=nan"),
        (["true", "1"], "1 of 2"),
        ([" 1", "2"], "' 1' in row 2"),
        (["a", "b", "1"], None),
        (["0000-01-01"], None),
    ],
)
def test_a_column_that_fits_no_exact_type_is_text_and_says_why(values: list[str], reason: str | None) -> None:
    kind, read, doubt = column(values)
    assert (kind, read) == (TEXT, [value or None for value in values])
    assert doubt is None if reason is None else doubt is not None and reason in doubt, doubt


def test_a_rule_says_the_order_of_days_and_months() -> None:
    assert column(["01/02/2026"], dates="dmy")[:2] == (DAY, [date(2026, 2, 1)])
    assert column(["01/02/2026"], dates="mdy")[:2] == (DAY, [date(2026, 1, 2)])
    assert column(["01/13/2026"], dates="dmy")[0] == TEXT
    assert column(["2026-01-02"], dates="mdy")[:2] == (DAY, [date(2026, 1, 2)])


def test_columns_that_disagree_on_the_order_are_text() -> None:
    file = read_file("a.csv", b"a,b,c\n13/01/2026,01/13/2026,02/03/2026\n")
    assert [str(kind) for kind in file.schema.types] == ["string"] * 3 and file.csv.dates is None
    one = read_file("a.csv", b"a,c\n13/01/2026,02/03/2026\n")
    assert [str(kind) for kind in one.schema.types] == ["date32[day]", "string"] and one.csv.dates == "dmy"


def test_the_last_row_counts_as_much_as_the_first() -> None:
    """Rows in many blocks: the value that decides is behind the first one."""
    limits, many = FormatLimits(row_bytes=1 << 10), 2_000
    for last, kind in {"x": TEXT, "13/01/2026": DAY, "": TEXT}.items():
        file = read_file("a.csv", b"d\n" + b"02/03/2026\n" * many + last.encode() + b"\n", limits)
        assert file.schema.field("d").type == kind
        assert len(file.rows) == many + bool(last)
    assert read_file("a.csv", b"d\n" + b"1\n" * many + b"2.5\n", limits).rows[0] == {"d": 1.0}


def test_json_texts_are_dates_only_in_iso_8601_and_never_numbers() -> None:
    rows = (
        b'{"d":"2026-01-02","t":"2026-01-02T03:04:05Z","l":"2026-01-02 03:04:05.5","n":"12","s":"13/04/2026"}\n'
        b'{"d":null,"t":"2026-01-02T03:04:05+01:00","n":"13","s":"01/02/2026"}\n'
    )
    file = read_file("a.jsonl", rows)
    types = {field.name: field.type for field in file.schema}
    assert types == {"d": DAY, "t": ZONED, "l": STAMP, "n": TEXT, "s": TEXT}
    assert file.rows[0]["d"] == date(2026, 1, 2) and file.rows[1]["t"] == datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)
    mixed = read_file("a.jsonl", b'{"d":"2026-01-02"}\n{"d":"soon"}\n')
    assert mixed.schema.field("d").type == TEXT
    assert mixed.columns["d"].doubt == "1 of 2 values are a date, and 'soon' is not"


def test_a_local_date_in_a_table_of_dates_needs_an_order() -> None:
    hint, data = pa.schema({"d": DAY}), b"d\n13/04/2026\n"
    with pytest.raises(FileRejected, match=r"row 2, column 'd'.*--csv dates=dmy"):
        list(read_rows(io.BytesIO(data), "a.csv", FormatLimits(), hint))
    (batch,) = read_rows(io.BytesIO(data), "a.csv", FormatLimits(), hint, CsvOptions(dates="dmy"))
    assert batch.to_pylist() == [{"d": date(2026, 4, 13)}]


NUMBERS = st.one_of(
    st.integers(-(10**40), 10**40).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map("{:f}".format),
    st.from_regex(r"-?[0-9]{1,25}\.?[0-9]{0,25}(e-?[0-9]{1,3})?", fullmatch=True),
)


@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_a_number_is_what_its_text_says(texts: list[str]) -> None:
    kind, values, _ = column(texts)
    for text, value in zip(texts, values, strict=True):
        if kind == TEXT:
            assert value == text
        elif kind == DOUBLE:
            digits = len(text.partition("e")[0].lstrip("-").replace(".", "").strip("0")) or 1
            assert Decimal(f"{value:.{digits - 1}e}") == Decimal(text)
        else:
            assert value == Decimal(text)


@given(
    st.lists(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), min_size=1, max_size=5),
    st.sampled_from(
        ["%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d.%m.%Y %H:%M", "%Y-%m-%dT%H:%M:%S.%f", "%m-%d-%Y %I:%M:%S %p"]
    ),
)
def test_a_date_is_what_strptime_reads_or_text(moments: list[datetime], form: str) -> None:
    """The standard library, told the form, agrees with every value that was inferred without being told."""
    texts = [moment.strftime(form.replace("%Y", f"{moment.year:04d}")) for moment in moments]
    kind, values, _ = column(texts)
    if kind == TEXT:
        assert values == texts and form[1] != "Y"
        return
    expected = [datetime.strptime(text, form) for text in texts]
    assert values == ([each.date() for each in expected] if kind == DAY else expected)


def test_duckdbs_sniffer_agrees_where_both_are_sure(tmp_path: Path) -> None:
    """An independent reader: on forms that need no guess it has the same types and values."""
    data = (
        "id,price,reading,day,at,zoned,ok,name\n"
        "1,12.5,1e-3,2026-01-02,2026-01-02 03:04:05,2026-01-02T03:04:05Z,true,x\n"
        "2,0.25,7.125,2025-12-31,2026-06-30 23:59:59.25,2026-01-02T03:04:05+02:00,false,\n"
    )
    ours = read_file("a.csv", data.encode())
    (tmp_path / "a.csv").write_text(data)
    engine = duckdb.connect()
    engine.execute("set timezone = 'UTC'")
    table = engine.execute("select * from read_csv(?)", [str(tmp_path / "a.csv")]).to_arrow_table()
    assert table.to_pylist() == ours.rows
    assert [str(kind) for kind in table.schema.types] == [str(kind) for kind in ours.schema.types]
