"""Bad inputs, formats by faults: what each is refused for, and where. Shared by the catalog's and the cloud's tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catalog.ingest.rules import Rule
from tests.unit.formats.test_formats import BAD, parquet, squeezed
from tests.unit.formats.test_media import PNG


@dataclass(frozen=True, eq=False)
class Case:
    """One file that must be refused. `table` says what kind of rows it is dropped among."""

    table: str
    name: str
    body: bytes
    position: dict[str, Any]
    reason: str
    limits: tuple[tuple[str, int], ...] = ()

    @property
    def kind(self) -> str:
        return self.name.rpartition("/")[2]


def _table(name: str) -> str:
    return "notes" if ".md" in name else "lines" if ".txt" in name else "rows"


RULE = Rule(
    columns={
        "a": "long",
        "b": "string",
        "at": "timestamptz",
        "day": "date",
        "price": "decimal(6, 2)",
        "ok": "boolean",
        "it's": "long",
    },
    key=("a",),
)
"""The table `ruled`, for which the faults are in the values."""

_RULED: list[tuple[str, bytes, dict[str, Any], str]] = [
    ("unknown.jsonl", b'{"a": 1, "typo": 2}', {}, "unknown column 'typo'"),
    ("unknown.csv", b"a,typo\n1,2\n", {}, "unknown column 'typo'"),
    ("unknown.parquet", parquet(pa.table({"a": [1], "typo": [2]})), {}, "unknown column 'typo'"),
    ("none.parquet", parquet(pa.table({"b": ["x"]})), {"row": 0, "column": "a"}, "required and missing"),
    ("text.jsonl", b'{"a": 1}\n{"a": "x"}', {"line": 2, "column": "a"}, "number to string"),
    ("all-text.jsonl", b'{"a": "1"}\n{"a": "x"}', {"row": 0, "column": "a"}, "is not a valid int64"),
    ("fraction.jsonl", b'{"a": 1}\n{"a": 2.5}', {"row": 1, "column": "a"}, "2.5 is not a valid int64"),
    ("huge.jsonl", b'{"a": 1}\n\n{"a": 9223372036854775808}', {"line": 3, "column": "a"}, "beyond 64 bits"),
    ("huge.json", b'[{"a": 1}, {"a": -9223372036854775809}]', {"row": 1, "column": "a"}, "beyond 64 bits"),
    ("huge.csv", b"a\n1\n9223372036854775808\n", {"row": 3, "column": "a"}, "is not a valid int64"),
    ("null-key.jsonl", b'{"a": 1}\n{"b": "x"}', {"row": 1, "column": "a"}, "required and null"),
    ("null-key.csv", b"a,b\n1,x\n,y\n", {"row": 1, "column": "a"}, "required and null"),
    ("doubled-key.jsonl", b'{"a": 1}\n{"a": 2}\n{"a": 1}', {"row": 2}, "same key"),
    ("doubled-key.parquet", parquet(pa.table({"a": [7, 7]})), {"row": 1}, "same key"),
    ("number.jsonl", b'{"a": 1, "b": 5}', {"row": 0, "column": "b"}, "5 is no"),
    ("quoted.parquet", parquet(pa.table({"a": [1], "it's": [2.5]})), {"row": 0, "column": "it's"}, "2.5 is no"),
    ("number.parquet", parquet(pa.table({"a": [1], "b": [5]})), {"row": 0, "column": "b"}, "5 is no"),
    ("word.csv", b"a\n1\nx\n", {"row": 3, "column": "a"}, "'x' is not a valid int64"),
    ("flag.csv", b"a,ok\n1,true\n2,perhaps\n", {"row": 3, "column": "ok"}, "'perhaps' is not a valid bool"),
    ("time.jsonl", b'{"a": 1, "at": "soon"}', {"row": 0, "column": "at"}, "'soon' is not a valid timestamp"),
    ("time.csv", b"a,at\n1,soon\n", {"row": 2, "column": "at"}, "'soon' is not a valid timestamp"),
    ("day.csv", b"a,day\n1,2026-02-30\n", {"row": 2, "column": "day"}, "'2026-02-30' is not a valid date"),
    ("day.jsonl", b'{"a": 1, "day": "2026-02-30"}', {"row": 0, "column": "day"}, "'2026-02-30' is not a valid date"),
    ("price.jsonl", b'{"a": 1, "price": "12345.67"}', {"row": 0, "column": "price"}, "is not a valid decimal"),
    ("price.csv", b"a,price\n1,1.234\n", {"row": 2, "column": "price"}, "is not a valid decimal"),
    ("list.jsonl", b'{"a": [1]}', {"row": 0, "column": "a"}, "is not a valid int64"),
]  # fmt: skip

_MORE: list[Case] = [
    Case("rows", "nan.jsonl", b'{"a": 1.5}\n{"a": NaN}', {"line": 2, "column": "a"}, "not a JSON number"),
    Case("rows", "infinite.jsonl", b'{"a": -Infinity}', {"line": 1, "column": "a"}, "not a JSON number"),
    Case("rows", "large.jsonl", b'{"a": 1e999}', {"line": 1}, "too big"),
    Case("rows", "rounded.jsonl", b'{"a": 1.5}\n{"a": 9007199254740993}', {"line": 2, "column": "a"}, "would round"),
    Case("rows", "deep.jsonl", b'{"o": {"l": [1, 99999999999999999999]}}', {"line": 1, "column": "o.l"}, "beyond 64"),
    Case("rows", "long.jsonl", b'{"a": ' + b"9" * 300 + b"}", {"line": 1, "column": "a"}, "beyond 64"),
    Case("rows", "longer.jsonl", b'{"a": ' + b"9" * 6000 + b"}", {"line": 1, "column": "a"}, "beyond 64"),
    Case("rows", "typo.jsnol", b'{"a": 1}', {}, "known format"),
    Case("rows", "bare", b"text", {}, "known format"),
    Case("rows", "late.csv.gz", squeezed(b"a,b\n1,2\n3\n"), {"row": 3}, "Expected 2 columns"),
    Case("rows", "really.parq", parquet(pa.table({"a": [1]})), {}, "name it .parquet"),
    Case("pictures", "page.jpg", b"<html></html>", {}, "content is of another type"),
    Case("pictures", "zeros.mp4", bytes(32), {}, "content is of another type"),
    Case("pictures", "late.csv", b"a\n1\n", {}, "cannot share a table"),
]  # fmt: skip

GOOD: dict[str, tuple[str, bytes]] = {
    "rows": ("good.jsonl", b'{"a": 1}\n'),
    "notes": ("good.md", b"# A\n"),
    "lines": ("good.txt", b"a\n"),
    "pictures": ("good.png", PNG),
    "ruled": ("good.jsonl", b'{"a": 1}\n'),
}
"""A file for each table that must go in whatever lies beside it."""


def _all() -> Iterable[Case]:
    for number, (name, body, limits, position, reason) in enumerate(BAD):
        if body and "no rows" not in reason and "no header" not in reason:  # those are empty, which is no fault
            yield Case(_table(name), f"{number}/{name}", body, position, reason, tuple(sorted(limits.items())))
    yield from _MORE
    for name, body, position, reason in _RULED:
        yield Case("ruled", name, body, position, reason)


CASES: list[Case] = list(_all())
IDS = [f"{case.table}-{case.name}" for case in CASES]


def fixed(case: Case, number: int) -> bytes:
    """What somebody who read the report would drop under the same key: good, and like no other file."""
    suffix = case.kind.removesuffix(".gz").removesuffix(".zst").rpartition(".")[2]
    plain = {
        "jsonl": b'{"a": %d}\n' % number,
        "json": b'[{"a": %d}]' % number,
        "csv": b"a\n%d\n" % number,
        "md": b"# %d\n" % number,
        "txt": b"%d\n" % number,
        "parquet": parquet(pa.table({"a": [number]})),
        "png": PNG + b"%d" % number,
    }.get(suffix)
    if plain is None:
        return b""
    if case.kind.endswith(".gz"):
        return squeezed(plain)
    return pa.Codec("zstd").compress(plain, asbytes=True) if case.kind.endswith(".zst") else plain
