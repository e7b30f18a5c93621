"""A few bytes of feed cost a few bytes of memory, and whatever a feed contains, it is refused by one exception."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.changes import ChangeSet, from_ipc, from_json_lines, to_ipc, to_json_lines, verify, verify_root
from catalog.changes.change_set import CommitHeader
from catalog.core.errors import Unverified
from catalog.core.strict_json import parse_strictly
from strandline.feed_files import read_sets
from tests.property.changes.feeds import named
from tests.worlds.forged_log import SIGNER, honest

FEED = honest().feed()


def head_of(changes: ChangeSet) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(next(iter(to_json_lines(changes))))
    return head


def refuse(head: dict[str, Any] | str, *lines: str, match: str = "not a change feed") -> None:
    text = head if isinstance(head, str) else json.dumps(head)
    with pytest.raises(Unverified, match=match):
        from_json_lines([text, *lines])


def set_at(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(head: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for parent in parents:
            head = head[parent]
        head[last] = value

    return change


HUGE = 10**12
PLACES: list[Any] = [
    [[0, HUGE]],
    [[0, 2**53 - 1]],
    [[0, 1e12]],
    [[0, 1], [0, HUGE]],
    [[-HUGE, 1]],
    [[3, 1]],
    [[1, 2], [0, 1]],
    [[0, 1], [1, 2]],
    [[0, True]],
    [["0", "1"]],
    [[0]],
    [0],
    {"0": 1},
    None,
    "01",
]


@pytest.mark.parametrize("places", PLACES, ids=str)
def test_indices_are_counted_before_they_are_made(places: Any) -> None:
    part = FEED[2].select([0, 2])
    head = head_of(part)
    assert head["part"]["places"] == [[0, 1], [2, 3]]
    head["part"]["places"] = places
    refuse(head, *list(to_json_lines(part))[1:])
    metadata = {b"strandline:changes": json.dumps({k: v for k, v in head.items() if k != "schema"}).encode()}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, part.changes.schema.with_metadata(metadata)) as writer:
        writer.write_table(part.changes.replace_schema_metadata(metadata))
    with pytest.raises(Unverified, match="not a change feed"):
        from_ipc(sink.getvalue().to_pybytes())


def test_nesting_is_refused_at_any_depth_and_in_any_place() -> None:
    for depth in (100, 5_000, 200_000):
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            nested = opening * depth + "1" + closing * depth
            for text in (nested, opening * depth):
                refuse(text)
                with pytest.raises(ValueError, match=r"nested|JSON|Expecting|limit"):
                    parse_strictly(text)
            for field in ("commit", "part", "evidence", "key", "schema_json"):
                head = json.dumps(head_of(FEED[0]) | {field: "@"}).replace('"@"', nested)
                refuse(head)
            lines = list(to_json_lines(FEED[0]))
            refuse(lines[0], f'{{"op":"INSERT","before":null,"after":{nested}}}')
            with pytest.raises(Unverified):
                verify(replace(FEED[0], schema_json=nested.encode()), SIGNER.verifier_key)


MEANINGLESS = [
    ("count", -1),
    ("count", 1.5),
    ("count", True),
    ("count", "3"),
    ("count", HUGE * HUGE),
    ("root", "zz"),
    ("root", "00"),
    ("root", 7),
    ("key", "region"),
    ("key", ["nothing"]),
    ("key", [["region"]]),
    ("key", None),
    ("format", "strandline/changes@v1"),
    ("commit.index", 2**53),
    ("commit.index", -1),
    ("commit.sequence", "1"),
    ("commit.snapshot_id", "１２"),
    ("commit.snapshot_id", "1_0"),
    ("commit.snapshot_id", " 1"),
    ("commit.snapshot_id", "9" * 4000),
    ("commit.snapshot_id", 12.0),
    ("commit.extra", 1),
    ("commit.table", ["sales.orders"]),
    ("commit.committed_ms", None),
    ("evidence.passed", ""),
    ("evidence.passed", {}),
    ("evidence.passed", ["ab"]),
    ("evidence.passed", [[1, 2]]),
    ("evidence.passed", [["a"]]),
    ("evidence.consistency", [HUGE]),
    ("evidence.consistency", [-1, []]),
    ("evidence.consistency", [1, ["xx"]]),
    ("evidence.leaf", "\ud800"),
    ("evidence.note", "extra"),
    ("schema", "AAAA"),
    ("schema", ""),
    ("schema", "not base64"),
    ("note", "something that a reader of the file would believe"),
]


@pytest.mark.parametrize(("path", "value"), MEANINGLESS, ids=[f"{path}-{value!r:.20}" for path, value in MEANINGLESS])
def test_a_head_says_what_it_should_and_nothing_else(path: str, value: Any) -> None:
    lines = list(to_json_lines(FEED[0]))
    head = json.loads(lines[0])
    set_at(path, value)(head)
    with pytest.raises(Unverified):  # a root of another length has the form of a feed, and does not verify
        verify(from_json_lines([json.dumps(head), *lines[1:]]), SIGNER.verifier_key)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9007199254740992", "9" * 10_000, "-0x1"])
def test_numbers_are_exact_and_finite(number: str) -> None:
    head = json.dumps(head_of(FEED[0]) | {"count": "@"}).replace('"@"', number)
    refuse(head)


def test_a_key_that_is_there_twice_is_refused_wherever_it_is() -> None:
    lines = list(to_json_lines(FEED[0]))
    line = json.loads(lines[1])
    twice = [
        (lines[0].replace('"count":', '"count": 99, "count":'), lines[1]),
        (lines[0].replace('"table":', '"table": "sales.refunds", "table":'), lines[1]),
        (lines[0].replace('"leaf":', '"leaf": "{}", "leaf":'), lines[1]),
        (lines[0], lines[1].replace('"op":', '"op": "DELETE", "op":')),
        (lines[0], lines[1].replace('"id":', '"id": 99, "id":')),
        (lines[0], lines[1].replace('"after":', f'"after": {json.dumps(line["after"] | {"id": 99})}, "after":')),
    ]
    from_json_lines(lines)
    for forged in twice:
        assert forged != (lines[0], lines[1])
        refuse(forged[0], forged[1], *lines[2:], match="twice")


@pytest.mark.parametrize(
    "change",
    [
        {"id": 1.5},
        {"id": True},
        {"id": "1_0"},
        {"id": " 1"},
        {"id": "１"},
        {"id": 2**53},
        {"id": "9" * 4000},
        {"id": [1]},
        {"amount": "1E-999999999"},
        {"amount": "1E+999999999"},
        {"amount": "NaN"},
        {"amount": "sNaN"},
        {"amount": "9" * 4000},
        {"amount": 1},
        {"amount": "1e9"},
        {"ratio": "1e999"},
        {"ratio": "infinity"},
        {"ratio": True},
        {"tags": "abc"},
        {"tags": {"0": "a"}},
        {"tags": [["a"]]},
        {"region": 5},
        {"region": "\ud800"},
        {"unknown": 1},
    ],
    ids=str,
)
def test_a_value_has_the_form_of_its_type_and_no_other(change: dict[str, Any]) -> None:
    """`1E-999999999` as a decimal ends the process: pyarrow 26 reads out of bounds."""
    lines = list(to_json_lines(FEED[0]))
    line = json.loads(lines[1])
    line["after"] |= change
    refuse(lines[0], json.dumps(line), *lines[2:])


@pytest.mark.parametrize(
    "kind",
    [
        pa.bool8(),
        pa.json_(),
        pa.opaque(pa.int8(), "a", "b"),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.int8(), 2**31 - 1),
        pa.binary(2**31 - 1),
        pa.list_view(pa.int64()),
        pa.string_view(),
        pa.dense_union([pa.field("a", pa.int64())]),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.decimal256(50, 2),
        pa.float16(),
        pa.int8(),
        pa.uint64(),
        pa.date64(),
        pa.time32("s"),
    ],
    ids=str,
)
def test_a_column_of_a_type_that_no_table_has_is_refused(kind: Any) -> None:
    """A key of Arrow's bool8 has bytes for values and a boolean for its name; a NULL of 2 GB takes 2 GB."""
    schema = pa.schema([named("k", kind, 1)])
    row = pa.struct(list(schema))
    head = head_of(FEED[0]) | {"schema": b64encode(schema.serialize().to_pybytes()).decode(), "key": ["k"], "count": 1}
    line = '{"op":"INSERT","before":null,"after":{"k":null}}'
    refuse(json.dumps(head), line)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_union(kind):
        return  # the stream itself would have the 2 GB, or no NULL
    changes = pa.table(
        [pa.array(["INSERT"]), pa.nulls(1, row), pa.StructArray.from_arrays([pa.nulls(1, kind)], fields=list(row))],
        schema=pa.schema([pa.field("op", pa.string(), False), ("before", row), ("after", row)]),
    )
    forged = ChangeSet(CommitHeader("a.b", "u", 1, None, 0), schema, ("k",), changes, bytes(32), 1)
    try:
        data = to_ipc(forged)
    except pa.ArrowException:
        return
    with pytest.raises(Unverified):
        from_ipc(data)
    with pytest.raises(Unverified):
        verify_root(forged)


def test_a_stream_of_few_bytes_takes_little_memory() -> None:
    """All values are equal, and compressed: 8 GB of them are 300 KB."""
    schema = pa.schema([named("k", pa.int64(), 1)])
    zeros = pa.record_batch([pa.array([0] * (1 << 20), pa.int64())], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for _ in range(4):
            writer.write_batch(zeros)
    data = sink.getvalue().to_pybytes()
    assert len(data) < 100_000
    with pytest.raises(Unverified, match="over the limit"):
        from_ipc(data)


def test_a_file_of_one_endless_line_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline import feed_files

    monkeypatch.setattr(feed_files, "MAX_LINE_BYTES", 1000)
    file = tmp_path / "feed.jsonl"
    for content in (
        b'{"format":' + b" " * 5000,
        b'{"a":1}\n' + b" " * 5000,
        b'{"a":1}\n\xff\xfe\n',
        b"{" * 900 + b"\n",
    ):
        file.write_bytes(content)
        with pytest.raises(Unverified):
            list(read_sets(str(file)))


def test_a_small_file_is_refused_within_little_memory(tmp_path: Path) -> None:
    """In a process of its own, whose memory grows by less than 300 MB."""
    part = FEED[2].select([0, 2])
    head = head_of(part)
    head["part"]["places"] = [[0, HUGE]]
    head["count"] = HUGE
    wide = pa.schema([named("k", pa.binary(2**31 - 1), 1)])
    widths = head_of(FEED[0]) | {"schema": b64encode(wide.serialize().to_pybytes()).decode(), "key": ["k"]}
    files = {
        "places": [json.dumps(head), *list(to_json_lines(part))[1:]],
        "nesting": ["[" * 400_000],
        "nested": ['{"format":' + "[" * 400_000],
        "width": [json.dumps(widths), '{"op":"INSERT","before":null,"after":{"k":null}}'],
        "values": ["[" + "[]," * 10_000_000 + "[]]"],
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines))
    code = """
import resource, sys
from catalog.changes import verify_feed
from catalog.core.errors import Unverified
from strandline.feed_files import read_sets
import numpy, pyarrow.compute
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for file in sys.argv[1:]:
    try:
        verify_feed(read_sets(file), [], table="sales.orders")
    except Unverified as error:
        print("refused")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000)
"""
    done = subprocess.run([sys.executable, "-c", code, *(str(tmp_path / name) for name in files)], capture_output=True)
    assert done.stdout.decode().split() == ["refused"] * len(files) + ["True"], done
