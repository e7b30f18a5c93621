"""Files of strangers, formats by faults by sizes: each must become rows or be refused, and nothing else.

Every one is made from constants, so that names and bytes are the same in every process.
"""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from tests.worlds.forged_arrow import PARQUET_BOMBS, forged_streams, parquet, stream, stream_bombs

NOTE = b"---\ntitle: Tides\ntags: [sea]\n---\n# Tides\n\nSee [[Brest]] and #moon.\n"
_TABLE = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"], "c": [[1.5], [], None]})


def _parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(_TABLE, sink)
    return sink.getvalue()


def _base() -> dict[str, bytes]:
    """One good file of each format, by its suffix."""
    return {
        "jsonl": b'{"a":1,"b":"x","c":[1.5]}\n{"a":2,"b":"y","c":[]}\n' * 20,
        "json": b'[{"a":1,"b":"x","c":[1.5]},{"a":2,"b":"y"}]',
        "csv": b'a,b,c\n1,x,"p\nq"\n2,y,"say ""hi"""\n' * 20,
        "tsv": b"a\tb\n1\tx\n2\ty\n" * 20,
        "txt": b"first line\nsecond line\n" * 20,
        "md": NOTE,
        "parquet": _parquet(),
        "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x10\x00\x00\x00\x10\x08\x06\x00\x00\x00",
        "jpg": b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(10) + b"\xff\xc0\x00\x11\x08\x00\x10\x00\x10",
    }


def _zstd(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)


def _flipped(data: bytes, seed: int) -> bytes:
    chosen, changed = random.Random(seed), bytearray(data)
    for _ in range(1 + len(data) // 64):
        changed[chosen.randrange(len(changed))] ^= 1 << chosen.randrange(8)
    return bytes(changed)


def _mutations(suffix: str, good: bytes) -> Iterator[tuple[str, str, bytes]]:
    name = f"f.{suffix}"
    yield "empty", name, b""
    yield "one byte", name, good[:1]
    yield "first half", name, good[: len(good) // 2]
    yield "without its last byte", name, good[:-1]
    yield "last half", name, good[len(good) // 2 :]
    yield "twice", name, good + good
    yield "zero bytes", name, bytes(1000)
    yield "many zero bytes", name, bytes(1 << 20)
    yield "nothing but breaks", name, b"\n" * 100_000
    yield "no UTF-8", name, good + b"\xff\xfe\n"
    yield "UTF-16", name, "a,b\n1,2\n".encode("utf-16")
    yield "random", name, random.Random(suffix).randbytes(4000)
    for seed in range(4):
        yield f"flipped {seed}", name, _flipped(good, seed)
    if suffix not in ("png", "jpg"):
        packed = gzip.compress(good, mtime=0)
        yield "gzip cut off", f"{name}.gz", packed[:-9]
        yield "gzip flipped", f"{name}.gz", _flipped(packed, 1)
        yield "no gzip", f"{name}.gz", good
        yield "gzip in gzip", f"{name}.gz", gzip.compress(packed, mtime=0)
        yield "zstd cut off", f"{name}.zst", _zstd(good)[:-3]
        yield "no zstd", f"{name}.zst", good


def _deep(levels: int) -> dict[str, bytes]:
    return {
        "arrays": b'{"a":' + b"[" * levels + b"]" * levels + b"}",
        "objects": b'{"a":' * levels + b"1" + b"}" * levels,
        "open arrays": b'{"a":' + b"[" * levels,
    }


def _json() -> Iterator[tuple[str, str, bytes]]:
    for levels in (63, 66, 166, 480, 2000, 100_000):
        for label, text in _deep(levels).items():
            for suffix in ("jsonl", "json"):
                yield f"{levels} {label}", f"f.{suffix}", text + b"\n"
    texts = {
        "a key of its own in each row": b"".join(b'{"k%d":1}\n' % n for n in range(20_000)),
        "a key of its own in each object": b'{"a":[' + b",".join(b'{"k%d":1}' % n for n in range(20_000)) + b"]}\n",
        "many columns": b"{" + b",".join(b'"c%d":1' % n for n in range(50_000)) + b"}\n",
        "the same key twice": b'{"a":1,"a":2}\n',
        "an empty key": b'{"":1}\n',
        "empty objects": b"{}\n" * 1000,
        "half a surrogate pair": b'{"a":"\\ud800"}\n',
        "a key with half a surrogate pair": b'{"\\ud800":1}\n',
        "a long integer": b'{"a":' + b"9" * 100_000 + b"}\n",
        "a large exponent": b'{"a":1e999999999}\n',
        "NaN": b'{"a":NaN}\n',
        "an unfinished text": b'{"a":"' + b"x" * 100_000,
        "types that change": b'{"a":1}\n{"a":"x"}\n{"a":[1]}\n{"a":{"b":1}}\n',
        "no object": b"[1,2]\n3\nnull\n",
        "null": b"null",
        "null before an object": b' null\n{"a":1}\n',
        "null after an object": b'{"a":1}\nnull\n',
        "true": b"true\n",
        "a name with a zero byte": b'{"a\\u0000b":1}\n',
        "a dot in a name": b'{"a.b":1}\n',
    }
    for label, text in texts.items():
        yield label, "f.jsonl", text
        yield label, "f.json", text


def _csv() -> Iterator[tuple[str, str, bytes]]:
    texts = {
        "many columns": b",".join(b"c%d" % n for n in range(100_000)) + b"\n" + b",".join([b"1"] * 100_000) + b"\n",
        "a header alone": b"a,b\n",
        "a ragged row": b"a,b\n1,2\n3\n",
        "a quote that never ends": b'a,b\n"x,1\n' + b"y,2\n" * 10_000,
        "names twice": b"a,a\n1,2\n",
        "an empty name": b"a,,b\n1,2,3\n",
        "zero bytes": b"a,b\n\x00,\x00\n",
        "a long integer": b"a\n" + b"9" * 100_000 + b"\n",
        "a large exponent": b"a\n1e999999999\n",
        "rows of nothing": b"a\n" + b"\n" * 100_000,
        "commas": b"," * 100_000 + b"\n",
        "quotes": b'"' * 100_000,
        "a long value": b"a\n" + b"x" * (9 << 20),
    }
    for label, text in texts.items():
        yield label, "f.csv", text


YAML = (
    '!!int ""', "!!bool x", "!!timestamp x", '"\\ud800"', "1" + ":59" * 20_000, "1" + ":59" * 400 + ".5", '!!float ""',
    "2001-99-99", "!!omap [1]", "!!pairs x", "!!set {a, b}", "{[a]: 1}", ".nan", "!!binary x", "!foo 1", "!!null x",
    "!!python/object:os.system x", '!!int "+"', "=", "2001-01-01T00:00:00+99:99", "&a [*a]", "[" * 70 + "]" * 70,
    "9" * 5000, "0b" + "1" * 5000, '"\\U00110000"', "!!int 0x", "{? 1, ? 2}", "'unclosed", "[1, 2", "|9\n x", "%x",
)  # fmt: skip


def _notes() -> Iterator[tuple[str, str, bytes]]:
    for number, value in enumerate(YAML):
        yield f"YAML {number}", "f.md", f"---\na: {value}\n---\nx".encode()
        yield f"YAML key {number}", "f.md", f"---\n{value}: 1\n---\nx".encode()
    texts = {
        "a heading of spaces": b"# a" + b" " * 400_000 + b"b\n",
        "a heading of tabs": b"# " + b"\t " * 200_000 + b"b\n",
        "a heading of hashes": b"# a" + b"#" * 400_000 + b"b\n",
        "a long list": b"---\na:\n" + b"- x\n" * 125_000 + b"---\n",
        "a list of lists": b"---\na: " + b"[[],[]]," * 7000 + b"\n---\n",
        "many keys": b"---\n" + b"".join(b"k%d: 1\n" % n for n in range(6000)) + b"---\n",
        "a billion laughs": b"---\na: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n---\n",
        "fences": b"```\n" * 100_000,
        "ticks": b"`" * 400_000,
        "opened links": b"[[" * 200_000,
        "links of hashes": b"[[a" + b"#" * 400_000,
        "tags": b"#a " * 100_000,
        "no end of the front matter": b"---\na: 1\n" + b"---x\n" * 50_000,
        "a title of half a surrogate pair": b'---\ntitle: "\\udc00"\n---\n',
        "tags that are objects": b"---\ntags: [{a: b}, [c], null, 1.5]\ntitle: {a: b}\n---\n",
    }
    for label, text in texts.items():
        yield label, "f.md", text


def _binary() -> Iterator[tuple[str, str, bytes]]:
    for label, make in PARQUET_BOMBS.items():
        yield f"bomb: {label}", "f.parquet", make()
    yield "magic alone", "f.parquet", b"PAR1PAR1"
    yield "a footer of 4 GB", "f.parquet", b"PAR1" + b"\xff\xff\xff\xff" + b"PAR1"
    yield "no columns", "f.parquet", parquet(pa.array([], pa.int64()))
    yield "gzip bomb", "f.txt.gz", gzip.compress(b"\x00" * (9 << 20), mtime=0)
    yield "zstd bomb", "f.jsonl.zst", _zstd(b" " * (64 << 20))
    heads = {
        "jpg": b"\xff\xd8\xff" + b"\xff" * 60_000,
        "jpeg": b"\xff\xd8\xff\xe0\x00\x00" * 100,
        "webp": b"RIFF\x00\x00\x00\x00WEBPVP8X",
        "gif": b"GIF89a",
        "png": b"\x89PNG\r\n\x1a\n",
        "mp4": b"\x00\x00\x00\x00ftyp",
        "pdf": b"PAR1",
        "bin": bytes(range(256)) * 100,
    }
    for suffix, head in heads.items():
        yield f"head of {suffix}", f"f.{suffix}", head


def hostile_files() -> dict[str, tuple[str, bytes]]:
    """Label -> a file's name and bytes."""
    files = {
        f"{suffix}: {label}": (name, data)
        for suffix, good in _base().items()
        for label, name, data in _mutations(suffix, good)
    }
    for make in (_json, _csv, _notes, _binary):
        files |= {f"{name.partition('.')[2]}: {label}": (name, data) for label, name, data in make()}
    return files


def hostile_streams() -> dict[str, bytes]:
    """Label -> an Arrow IPC stream."""
    good = stream(pa.array([1, 2, 3]), pa.array(["x", "y", None]), pa.array([[1.5], [], None]))
    changed = {f"flipped {seed}": _flipped(good, seed) for seed in range(30)}
    cut = {f"cut at {at}": good[:at] for at in range(0, len(good), 40)}
    return {"empty": b"", "zeros": bytes(1000), **changed, **cut, **forged_streams(), **stream_bombs()}
