"""CSV files as people have them: delimiters and encodings that are detected, and marks that a rule sets."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.formats import CsvOptions, FileRejected, FormatLimits, read_rows
from catalog.formats.csv_dialect import DELIMITERS, StreamWithHead, Utf8Stream, detect_delimiter
from tests.worlds.row_files import read_file


def read(data: bytes, name: str = "a.csv", hint: pa.Schema | None = None, **options: Any) -> list[dict[str, Any]]:
    if hint is None:
        return read_file(name, data, **options).rows
    batches = read_rows(io.BytesIO(data), name, FormatLimits(), hint, CsvOptions(**options))
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a;b\n1;2\n", [{"a": 1, "b": 2}]),
        (b"a;b\n1,5;x,y\n2,5;z\n", [{"a": "1,5", "b": "x,y"}, {"a": "2,5", "b": "z"}]),
        (b"a|b\n1|2\n", [{"a": 1, "b": 2}]),
        (b"a\tb\n1\t2\n", [{"a": 1, "b": 2}]),
        (b'"a;x",b\n1,2\n', [{"a;x": 1, "b": 2}]),
        (b"a,b;c\n1,2\n3,4;5\n", [{"a": 1, "b;c": "2"}, {"a": 3, "b;c": "4;5"}]),
        (b'a;b,c\n"1,2";3\n4;5\n', [{"a": "1,2", "b,c": 3}, {"a": "4", "b,c": 5}]),
        ("a;b\ng\u00e4;2\n".encode("utf-16"), [{"a": "gä", "b": 2}]),
        (b"\xfe\xff" + "a;b\n\U0001f600;2\n".encode("utf-16-be"), [{"a": "\U0001f600", "b": 2}]),
        (b"a\n1;2\n", [{"a": "1;2"}]),
    ],
)
def test_delimiter_and_encoding_are_detected(data: bytes, expected: list[dict[str, Any]]) -> None:
    assert read(data) == expected


def test_two_delimiters_that_fit_are_refused_until_a_rule_decides() -> None:
    data = b"a;b,c\n1;2,3\n"
    with pytest.raises(FileRejected, match=r"',' and ';' could both be the delimiter: .*--csv delimiter="):
        read(data)
    assert read(data, delimiter=",") == [{"a;b": "1;2", "c": 3}]
    assert read(data, delimiter=";") == [{"a": 1, "b,c": "2,3"}]


def test_a_semicolon_file_with_a_ragged_row_is_not_one_column_of_text() -> None:
    with pytest.raises(FileRejected, match=r"row 3: Expected 2 columns, got 3"):
        read(b"a;b\n1;2\n1;2;3\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.234,5", 1234.5),
        ("-1.234.567", -1234567.0),
        ("0,1", 0.1),
        ("1234", 1234.0),
        ("1,5e3", 1500.0),
    ],
)
def test_numbers_by_the_rules_marks(text: str, value: float) -> None:
    data = f"a;b\n{text};0,5\n".encode()
    assert read(data, decimal=",", thousands=".")[0]["a"] == value
    hint = pa.schema({"a": pa.float64(), "b": pa.decimal128(9, 2)})
    assert read(data, hint=hint, decimal=",", thousands=".")[0]["a"] == value


@pytest.mark.parametrize("text", ["1.5", "1.23,4", "12.34", "1,2,3", ".5", "1.2345", "1.234.5"])
def test_a_number_with_other_marks_is_not_guessed(text: str) -> None:
    data = f"a;b\n{text};x\n".encode()
    assert read(data, decimal=",", thousands=".") == [{"a": text, "b": "x"}]
    with pytest.raises(FileRejected, match=f"row 2, column 'a': '{text}' is not a valid double"):
        read(data, hint=pa.schema({"a": pa.float64()}), decimal=",", thousands=".")


def test_the_rule_says_what_is_null_and_where_the_header_is() -> None:
    data = b'Report of May\n\na,b\nNA,"NA"\n1,-\n'
    assert read(data, nulls=("NA", "-"), skip_lines=2) == [{"a": None, "b": "NA"}, {"a": 1, "b": None}]
    with pytest.raises(FileRejected, match="fewer lines than the 9"):
        read(data, skip_lines=9)
    with pytest.raises(FileRejected, match="row 5: Expected 2 columns, got 3"):
        read(b"x\ny\na,b\n1,2\n1,2,3\n", skip_lines=2)


def test_latin_1_only_by_rule() -> None:
    data = "a\ng\u00e4\n".encode("latin-1")
    with pytest.raises(FileRejected, match="not UTF-8: save the file as UTF-8, or set its encoding"):
        read(data)
    assert read(data, encoding="latin-1") == read(data, encoding="windows-1252") == [{"a": "gä"}]
    with pytest.raises(FileRejected, match="not windows-1252"):
        read(b"a\n\x81\n", encoding="windows-1252")
    with pytest.raises(FileRejected, match="not utf-16"):
        read("a\nb\n".encode("utf-16")[:-1])


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ";;"},
        {"delimiter": "\n"},
        {"delimiter": "é"},
        {"delimiter": '"'},
        {"decimal": ";"},
        {"thousands": "."},
        {"thousands": "x"},
        {"skip_lines": -1},
        {"nulls": ("x",) * 101},
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        CsvOptions(**options)


CELL = st.text(st.characters(codec="utf-8", exclude_characters='\r\n\0"'), max_size=6)


@given(st.lists(st.lists(CELL, min_size=2, max_size=2), min_size=1, max_size=8), st.sampled_from(DELIMITERS))
def test_a_quoted_file_is_read_back_whatever_its_delimiter(rows: list[list[str]], delimiter: str) -> None:
    lines = [["a", "b"], *rows]
    data = "\n".join(delimiter.join(f'"{cell}"' for cell in line) for line in lines).encode()
    hint = pa.schema({"a": pa.string(), "b": pa.string()})
    assert detect_delimiter(data, '"') == delimiter
    assert read(data, hint=hint) == [dict(zip("ab", row, strict=True)) for row in rows]


@given(st.text(max_size=200), st.integers(1, 9), st.sampled_from(["utf-16", "latin-1"]))
def test_streams_hand_on_every_byte(text: str, size: int, encoding: str) -> None:
    text = text.encode(encoding, "ignore").decode(encoding)
    data = text.encode(encoding)
    stream = Utf8Stream(StreamWithHead(data[:7], io.BytesIO(data[7:])), encoding)
    parts = list(iter(lambda: stream.read(size), b""))
    assert b"".join(parts) == text.encode()
    assert all(len(part) == size for part in parts[:-1])
