"""Every format's good and bad files: good ones give the rows that stand in them, bad ones say where and why."""

from __future__ import annotations

import gzip
import io
import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.formats import json as json_format
from catalog.formats.limits import FileRejected, FormatLimits
from catalog.formats.reader import Format, detect, read_rows, unify
from tests.worlds.row_files import read_file

BOM = b"\xef\xbb\xbf"


def read(name: str, data: bytes, hint: pa.Schema | None = None, **limits: int) -> list[dict[str, Any]]:
    """The rows as ingestion reads them: without a table, in the types that all rows have."""
    if hint is None:
        return read_file(name, data, FormatLimits(**limits)).rows
    return [
        row for batch in read_rows(io.BytesIO(data), name, FormatLimits(**limits), hint) for row in batch.to_pylist()
    ]


def zstd(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)


def squeezed(data: bytes) -> bytes:
    """gzip without the time of day: the cases' names must be the same in every process."""
    return gzip.compress(data, mtime=0)


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def deep(levels: int) -> bytes:
    return b'{"a":' + b"[" * levels + b"]" * levels + b"}"


GOOD: list[tuple[str, bytes, list[dict[str, Any]]]] = [
    ("a.jsonl", b'{"a":1}\n{"a":2}\n', [{"a": 1}, {"a": 2}]),
    ("a.ndjson", b'{"a":1}\r\n\n{"b":"x"}', [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
    ("a.jsonl", BOM + b'{"a":1}', [{"a": 1}]),
    ("a.jsonl", b'{"a":1}\n{"a":1.5}', [{"a": 1.0}, {"a": 1.5}]),
    ("a.jsonl", b'{"at":"2026-01-01T00:00:00"}', [{"at": datetime(2026, 1, 1)}]),
    ("a.csv", b"n\n1\n12345678901234567890123\n", [{"n": 1}, {"n": 12345678901234567890123}]),
    ("a.csv", b"n\n1.5\n9007199254740993\n", [{"n": Decimal("1.5")}, {"n": 9007199254740993}]),
    ("a.csv", b"n\n1\n0.12345678901234567890123\n", [{"n": 1}, {"n": Decimal("0.12345678901234567890123")}]),
    ("a.csv", b"n\n9007199254740993.5\n", [{"n": Decimal("9007199254740993.5")}]),
    ("a.csv", b"n\n1e400\n", [{"n": "1e400"}]),
    ("a.csv", b"n\n1e-400\n1\n", [{"n": "1e-400"}, {"n": "1"}]),
    ("a.jsonl", b'{"o":{"at":"2026-01-01"},"l":["2026-01-01"]}', [{"o": {"at": "2026-01-01"}, "l": ["2026-01-01"]}]),
    ("a.jsonl", b'{"a":"{[{[{[{["}', [{"a": "{[{[{[{["}]),
    ("a.jsonl", b'{"a":[null,1]}\n{"a":[null]}', [{"a": [None, 1]}, {"a": [None]}]),
    ("a.jsonl", b'{"a":[null,null,"x"]}', [{"a": [None, None, "x"]}]),
    ("a.jsonl", b'{"a":[null,null]}\n{"a":null}', [{"a": [None, None]}, {"a": None}]),
    ("a.json", b'[{"a":[null,{"b":[null,null]}]}]', [{"a": [None, {"b": [None, None]}]}]),
    ("a.json", b'[{"a":1},\n\n {"a":\n2}]', [{"a": 1}, {"a": 2}]),
    ("a.json", b'{"a":1}', [{"a": 1}]),
    ("a.json", BOM + b'{"a":1}{"a":2}\n{"a":3}', [{"a": 1}, {"a": 2}, {"a": 3}]),
    ("a.csv", b"a,b\n1,x\n2,\n", [{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
    ("a.csv", b'a\n""\nx\n', [{"a": ""}, {"a": "x"}]),
    ("a.csv", b'a,b\n"x\ny","say ""hi"""\n', [{"a": "x\ny", "b": 'say "hi"'}]),
    ("a.csv", BOM + b"a\n1.5\n2\n", [{"a": 1.5}, {"a": 2.0}]),
    ("a.csv", b"zip,phone\n007,+1\n", [{"zip": "007", "phone": "+1"}]),
    ("a.csv", b"a,b,c\ntrue,1,nan\nFALSE,0,2\n", [{"a": True, "b": 1, "c": "nan"}, {"a": False, "b": 0, "c": "2"}]),
    ("a.csv", b"a,b\n0x1F,\"1,000\"\n", [{"a": "0x1F", "b": "1,000"}]),
    ("a.csv", b"a\nx\n99999999999999999999999\n", [{"a": "x"}, {"a": "99999999999999999999999"}]),
    ("a.csv", b"a\n9223372036854775807\n-9223372036854775808\n", [{"a": 2**63 - 1}, {"a": -(2**63)}]),
    ("a.csv", b"a\n0.10000000000000001\n1.000000000000000056e-01\n1e22\n", [{"a": 0.1}, {"a": 0.1}, {"a": 1e22}]),
    ("a.csv", b"a\n9007199254740992\n0.5\n", [{"a": 2.0**53}, {"a": 0.5}]),
    ("a.csv", b"a\n5e-324\n0e5\n-0.0\n", [{"a": 5e-324}, {"a": 0.0}, {"a": 0.0}]),
    ("a.jsonl", b'{"a":0.30000000000000004,"s":"0.12345678901234567890123"}', [
        {"a": 0.1 + 0.2, "s": "0.12345678901234567890123"}]),
    ("a.jsonl", b'{"o":{"n":9007199254740993,"x":1e17}}', [{"o": {"n": 2**53 + 1, "x": 1e17}}]),
    ("a.tsv", b"a\tb\n1\tx,y\n", [{"a": 1, "b": "x,y"}]),
    ("A.CSV.GZ", squeezed(b"a\n1\n") + squeezed(b"2\n"), [{"a": 1}, {"a": 2}]),
    ("a.jsonl.zst", zstd(b'{"a":1}'), [{"a": 1}]),
    ("a.parquet", parquet(pa.table({"a": [1, None]})), [{"a": 1}, {"a": None}]),
    ("a.parquet.gz", squeezed(parquet(pa.table({"a": ["x"]}))), [{"a": "x"}]),
    ("a.log", b"1\r\n\n2", [{"path": "a.log", "line": n, "text": t} for n, t in ((1, "1"), (2, ""), (3, "2"))]),
]  # fmt: skip

BAD: list[tuple[str, bytes, dict[str, int], dict[str, Any], str]] = [
    ("a.jsonl", b'{"a":1}\nnull\n', {}, {"line": 2}, "null, not an object"),
    ("a.exe", b"", {}, {}, "known format"),
    ("csv", b"", {}, {}, "known format"),
    ("a.gz", b"", {}, {}, "known format"),
    ("a.jsonl", b"", {}, {}, "no rows"),
    ("a.jsonl", b"\n \n", {}, {}, "no rows"),
    ("a.jsonl", b'{"a":1}\n\n{"a":', {}, {"line": 3}, "Invalid value"),
    ("a.jsonl", b'{"a":1}\n[1]\n', {}, {"line": 2}, "changed from object to array"),
    ("a.jsonl", b'{"a":1}\n{"a":"x"}', {}, {"line": 2, "column": "a"}, "from number to string"),
    ("a.jsonl", b'{"o":{"a":1}}\n{"o":{"a":[]}}', {}, {"line": 2, "column": "o.a"}, "from number to array"),
    ("a.jsonl", b'{"a":1,"a":2}', {}, {"line": 1, "column": "a"}, "twice"),
    ("a.jsonl", b'{"a":1}\n{"a":"\xff"}', {}, {"line": 2}, "not UTF-8"),
    ("a.jsonl", b'{"a":1}\n{"a":"' + b"x" * 99 + b'"}', {"row_bytes": 50}, {"line": 2}, "longer than 50"),
    ("a.jsonl", b'{"a":1}\n' + deep(70), {}, {"line": 2}, "deeper than 32"),
    ("a.jsonl", b"\n" * 300 + deep(100) + b'\n{"a":[]}' * 300, {}, {"line": 301}, "deeper than 32"),
    ("a.jsonl", deep(200_000), {}, {"line": 1}, "deeper than 32"),
    ("a.jsonl", b'{"a":\nNaN}\n', {}, {"line": 1, "column": "a"}, "each row in one line"),
    ("a.jsonl", b'null\n{"a":1}\n', {}, {"line": 1}, "not an object"),
    ("a.jsonl", b'{"a":1,"b":2,"c":3}', {"columns": 2}, {"line": 1}, "3 columns"),
    ("a.jsonl.gz", squeezed(b'{"a":1}\n' * 99), {"decompressed_bytes": 99}, {}, "over 99 bytes"),
    ("a.csv.gz", squeezed(b"a\n" * 99), {"decompressed_bytes": 99}, {}, "over 99 bytes"),
    ("a.jsonl.gz", squeezed(b'{"a":1}\n')[:-9], {}, {}, "truncated"),
    ("a.csv.gz", b"a,b\n1,2\n", {}, {}, "not valid gzip"),
    ("a.jsonl.zst", b'{"a":1}', {}, {}, "not valid zstd"),
    ("a.json", b"[]", {}, {}, "no rows"),
    ("a.json", b"[1]", {}, {"row": 0}, "not an object"),
    ("a.json", b'[{"a":1}', {}, {"row": 1}, "cut off"),
    ("a.json", b'[{"a":1},', {}, {"row": 1}, "cut off"),
    ("a.json", b'[{"a":1},]', {}, {"row": 1}, "not JSON"),
    ("a.json", b'[{"a":1} {"a":2}]', {}, {"row": 1}, "a comma or the end of the array is missing"),
    ("a.json", b'[{"a":1}] {}', {}, {"row": 1}, "after the end of the array"),
    ("a.json", b'{"a":1}{"a":', {}, {"row": 1}, "not JSON"),
    ("a.json", b'{"a":NaN}', {}, {"row": 0}, "NaN"),
    ("a.json", b'{"a":"\xff"}', {}, {"row": 0}, "not UTF-8"),
    ("a.json", deep(70), {}, {"row": 0}, "deeper than 32"),
    ("a.json", deep(200_000), {}, {"row": 0}, "nested too deep"),
    ("a.json", b'[{"a":1},{"a":"x"}]', {}, {"row": 1, "column": "a"}, "from number to string"),
    ("a.json", b'{"a":"' + b"x" * 99, {"row_bytes": 50}, {"row": 0}, "longer than 50"),
    ("a.csv", b"", {}, {}, "no header"),
    ("a.csv", b"a,b\n", {}, {}, "no rows"),
    ("a.csv", b"a,a\n1,2\n", {}, {"row": 1, "column": "a"}, "twice in the header"),
    ("a.csv", bytes(1000), {}, {"row": 1}, "control characters"),
    ("a.csv", b"\x1f\x8b\x08", {}, {"row": 1}, "not UTF-8"),
    ("a.csv", b"a,b\x00\n1,2\n", {}, {"row": 1}, "control characters"),
    ("a.csv", b"a,,c\n1,2,3\n", {}, {"row": 1}, "column 2 has no name"),
    ("a.csv", b"a,b\n1,2\n3\n", {}, {"row": 3}, "Expected 2 columns, got 1"),
    ("a.csv", b"a,b\n1,2,3\n", {}, {"row": 2}, "Expected 2 columns, got 3"),
    ("a.csv", b'a,b\n1,"2\n3,4\n', {}, {}, "never closed"),
    ("a.csv", b"a,b\n1,\xff\n", {}, {"row": 2, "column": "#2"}, "UTF-8"),
    ("a.csv", b"a,b\n" + b"x" * 99 + b",1\n", {"row_bytes": 50}, {}, "longer than 50"),
    ("a.csv", b"a,b,c\n1,2,3\n", {"columns": 2}, {"row": 1}, "3 columns"),
    ("a.jsonl", b'{"n":1}\n{"n":0.12345678901234567890123}', {}, {"line": 2, "column": "n"}, "double cannot hold"),
    ("a.jsonl", b'{"n":0.50000000000000000000001}', {}, {"line": 1, "column": "n"}, "would become 0.5"),
    ("a.jsonl", b'{"o":{"l":[1e-400]}}', {}, {"line": 1, "column": "o.l"}, "would become 0.0"),
    ("a.jsonl", b'{"n":1.5}{"n":9007199254740993}', {}, {"line": 1, "column": "n"}, "would round"),
    ("a.json", b'[{"n":1},\n{"n":\n12345678901234567.5}]', {}, {"row": 1, "column": "n"}, "double cannot hold"),
    ("a.parquet", b"PAR1 not really", {}, {}, "not valid Parquet"),
    ("a.parquet", parquet(pa.table({"a": [1]}))[:-20], {}, {}, "not valid Parquet"),
    ("a.parquet", parquet(pa.table({"a": ["x" * 9999]})), {"decompressed_bytes": 99}, {}, "over the limit"),
    ("a.parquet", parquet(pa.table({"a": [1], "b": [2]})), {"columns": 1}, {}, "2 columns"),
    ("a.parquet", parquet(pa.table({"a": [[[1]]]})), {"depth": 2}, {"column": "a"}, "deeper than 2"),
    ("a.parquet", parquet(pa.table({"a": pa.array([], pa.int64())})), {}, {}, "no rows"),
    ("a.txt", b"ok\n\xff\n", {}, {"line": 2}, "not UTF-8"),
    ("a.txt", b"ok\n" + b"x" * 99, {"row_bytes": 50}, {"line": 2}, "longer than 50"),
    ("a.txt", b"", {}, {}, "no rows"),
    ("a.md", b" \n", {}, {}, "no rows"),
    ("a.md", b"# A\n\xff", {}, {"line": 2}, "not UTF-8"),
    ("a.md", b"x" * 99, {"row_bytes": 50}, {}, "longer than 50"),
    ("a.md", b"---\na: 1\nno end", {}, {"line": 1}, "never closed"),
    ("a.md", b"---\na: 1\nb: [\n---\n", {}, {"line": 4}, "not valid YAML"),
    ("a.md", b"---\na: &x 1\nb: *x\n---\n", {}, {"line": 3}, "alias"),
    ("a.md", b"---\n- a\n---\n", {}, {"line": 1}, "is a list"),
    ("a.md", b"---\na: .nan\n---\n", {}, {"line": 1}, "cannot be stored as JSON"),
    ("a.md", b"---\na: !!python/object/apply:os.getcwd []\n---\n", {}, {"line": 2}, "not valid YAML"),
    ("a.md", b"---\na: " + b"[" * 70 + b"]" * 70 + b"\n---\n", {}, {"line": 2}, "deeper than 32"),
    ("a.md", b"---\nb: 1\na: 1" + b":59" * 200 + b"\n---\n", {}, {"line": 3}, "more than 400 characters"),
    ("a.md", b"---\na: 1" + b"0" * 400 + b"\n---\n", {}, {"line": 2}, "more than 400 characters"),
    ("a.md", b"---\na:\n" + b"- x\n" * 4001 + b"---\n", {}, {"line": 4000}, "more than 4000 values"),
    ("a.md", b"---\na: " + b"x" * 70_000 + b"\n---\n", {}, {"line": 1}, "over the limit of 65536"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "expected"), GOOD, ids=[f"{n}-{name}" for n, (name, *_) in enumerate(GOOD)])
def test_a_good_file_gives_its_rows(name: str, data: bytes, expected: list[dict[str, Any]]) -> None:
    assert read(name, data) == expected


@pytest.mark.parametrize(
    ("name", "data", "limits", "position", "reason"), BAD, ids=[f"{n}-{name}" for n, (name, *_) in enumerate(BAD)]
)
def test_a_bad_file_is_refused_with_its_position(
    name: str, data: bytes, limits: dict[str, int], position: dict[str, Any], reason: str
) -> None:
    with pytest.raises(FileRejected) as caught:
        read(name, data, **limits)
    assert reason in caught.value.message
    assert caught.value.position == position


def test_a_note_keeps_its_text_and_tells_its_tags_and_links() -> None:
    text = (
        "---\ntitle: Neap tide\ntags: [sea, '#moon']\nborn: 2026-01-01\n---\n# Heading\n"
        "#low/water see [[Moon|the moon]], [[Sun#noon]] `#code [[No]]`\n```\n#fenced\n```\n[[Moon]] a#b http://x/#c\n"
    )
    (row,) = read("sub/n.md", text.encode())
    assert row["path"] == "sub/n.md" and row["title"] == "Neap tide"
    assert row["tags"] == ["sea", "moon", "low/water"]
    assert row["links"] == ["Moon", "Sun"]
    assert json.loads(row["front_matter"]) == {"title": "Neap tide", "tags": ["sea", "#moon"], "born": "2026-01-01"}
    assert row["body"] == text.partition("---\n# ")[2].join(["# ", ""])


@pytest.mark.parametrize(("text", "title"), [("# Spring tide #\n", "Spring tide"), ("text", "n"), ("---\n\ntext", "n")])
def test_a_note_without_front_matter_has_a_title(text: str, title: str) -> None:
    (row,) = read("sub/n.md.gz", squeezed(text.encode()))
    assert (row["title"], row["front_matter"], row["body"]) == (title, None, text)


def test_what_the_table_has_decides_what_text_is() -> None:
    table = pa.schema([pa.field("n", pa.int64()), pa.field("s", pa.string()), pa.field("at", pa.timestamp("us"))])
    (row,) = read("a.csv", b"n,s,at\n1,2,2026-01-01 00:00:00\n", table)
    assert (row["n"], row["s"], str(row["at"])) == (1, "2", "2026-01-01 00:00:00")
    with pytest.raises(FileRejected, match="'x' is not a valid int64") as caught:
        read("a.csv", b"n,s\n1,1\nx,1\n", table)
    assert caught.value.position == {"row": 3, "column": "n"}
    assert read("a.jsonl", b'{"s":"2026-01-01"}', table) == [{"n": None, "s": "2026-01-01"}]


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (pa.float64(), b"12345678901234567890123", "beyond 64 bits"),
        (pa.float64(), b"9007199254740993", "would round"),
        (pa.float64(), b"1e400", "too large"),
        (pa.float32(), b"16777217", "cannot hold"),
        (pa.float32(), b"1e39", "cannot hold"),
        (pa.int64(), b"0x1F", "is not a valid int64"),
        (pa.timestamp("us"), b"2026-01-01 00:00:00.1234567", "is not a valid timestamp"),
        (pa.date32(), b"01/02/2026", "is not a valid date32"),
        (pa.bool_(), b"yes", "is not a valid bool"),
    ],
)
def test_a_value_that_the_tables_type_cannot_hold_is_refused(kind: pa.DataType, text: bytes, reason: str) -> None:
    with pytest.raises(FileRejected, match=reason) as caught:
        read("a.csv", b"n\n" + text + b"\n", pa.schema([("n", kind)]))
    assert caught.value.position == {"row": 2, "column": "n"}


def test_text_is_not_taken_for_bytes() -> None:
    assert read("a.csv", b"n\nabc\n", pa.schema([("n", pa.binary())])) == [{"n": "abc"}]


def test_a_file_of_many_blocks_is_read_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_format, "BLOCK_BYTES", 64)
    expected = [{"id": n, "text": "é" * (n % 40)} for n in range(500)]
    lines = [json.dumps(row, ensure_ascii=False).encode() for row in expected]
    assert read("a.jsonl", b"\n".join(lines)) == expected
    assert read("a.json", b"[" + b" ,\n".join(lines) + b"]") == expected
    with pytest.raises(FileRejected) as caught:
        read("a.jsonl", b"\n".join([*lines, b"oops"]))
    assert caught.value.position == {"line": 501}
    with pytest.raises(FileRejected, match="type changes"):
        read("a.jsonl", b"".join(b'{"id": %s, "text": "%s"}\n' % (n, b"x" * 200) for n in (b"1", b"2", b'"3"')))


def test_formats_are_told_by_suffix() -> None:
    assert detect("x.y/A.JSONL.Zst") == Format("jsonl", "zstd")
    assert detect("a.markdown") == Format("markdown")


def test_schemas_go_together_or_say_which_column_does_not() -> None:
    def schema(**kinds: Any) -> pa.Schema:
        return pa.schema(list(kinds.items()))

    seen = [schema(a=pa.int64(), n=pa.null(), l=pa.list_(pa.null())), schema(a=pa.float64(), b=pa.int32())]
    assert unify(seen) == schema(a=pa.float64(), n=pa.string(), l=pa.list_(pa.string()), b=pa.int64())
    clash = [schema(a=pa.int64()), schema(a=pa.string())]
    with pytest.raises(FileRejected, match="'a'"):
        unify(clash)
    for kind in (pa.uint64(), pa.struct([])):
        with pytest.raises(FileRejected):
            unify([schema(a=kind)])
