"""What reads strangers' bytes: each target takes bytes, and raises nothing but the errors that it documents."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from catalog.access.callers import caller_of
from catalog.changes.row_proof import RowProof
from catalog.changes.serialization import from_ipc, from_json_lines
from catalog.core.errors import Internal, LakeError
from catalog.core.point_in_time import parse_feed_position
from catalog.formats import FileRejected, FormatLimits, dimensions, media_type, read_arrow_stream, read_rows
from catalog.formats.parquet import read_parquet_table
from catalog.ingest.rules import parse_rule
from catalog.ingest.s3_events import parse_event
from catalog.merkle import proof
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import VerifierKey, split_note
from catalog.merkle.policy import Policy
from catalog.merkle.tiles import Tile, split_entries
from catalog.merkle.verify import ProofError
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.reader.as_of_file import read_as_of
from tests.worlds.hostile_files import hostile_files, hostile_streams

LIMITS = FormatLimits(decompressed_bytes=64 << 20, in_memory_bytes=16 << 20, row_bytes=1 << 20)
CORPUS = Path(__file__).parent / "corpus"
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
_SMALL = 20_000

STATEMENTS = (
    "SELECT a, count(*) FROM gold.t AS OF 42 WHERE b <> 'x' GROUP BY a HAVING count(*) > 1 ORDER BY 2 DESC LIMIT 3",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r, unnest([1]) AS u",
    "SELECT x.a::bigint + CASE WHEN y.b IS NULL THEN 1 ELSE -2.5e3 END FROM t VERSION AS OF 7 x JOIN u y USING (id)",
    "EXPLAIN ROUTE SELECT sum(v) OVER (PARTITION BY k ORDER BY t ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM s.t",
    "SELECT * FROM docs WHERE body @@ 'tide' ORDER BY embedding <-> 'moon' LIMIT 5",
    "SELECT \"A\".\"b c\", 'it''s', $p, {'k': [1]}, interval '1 day' FROM (VALUES (1)) AS \"A\"(\"b c\") -- end",
)


@dataclass(frozen=True)
class Target:
    """`run` reads one input; `expected` are the errors by which it may refuse it."""

    run: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    expected: tuple[type[Exception], ...] = (LakeError,)

    def check(self, data: bytes) -> None:
        try:
            self.run(data)
        except Internal:
            raise
        except self.expected:
            pass


def _rows(name: str) -> Callable[[bytes], object]:
    def run(data: bytes) -> object:
        return [batch.validate(full=True) for batch in read_rows(io.BytesIO(data), name, LIMITS)]

    return run


@cache
def _files() -> dict[str, tuple[str, bytes]]:
    return hostile_files()


def _seeds_of(suffix: str) -> Callable[[], list[bytes]]:
    return lambda: [data for name, data in _files().values() if name == f"f.{suffix}" and len(data) <= _SMALL]


def _media(data: bytes) -> object:
    kind = media_type("f.png", data[:65536])
    return None if kind is None else dimensions(kind, data[:65536])


def _token(data: bytes) -> object:
    """The token's payload, and claims that agree with it or do not, as a gateway would pass them on."""
    header = f"Bearer e30.{base64.urlsafe_b64encode(data).decode().rstrip('=')}.c2ln"
    claims: dict[str, Any] = {}
    with suppress(ValueError, RecursionError):
        stated = json.loads(data)
        claims = {str(name): str(value) for name, value in stated.items()} if isinstance(stated, dict) else {}
    caller = caller_of({"jwt": {"claims": claims}}, None, header)
    assert "#" in caller.subject
    return caller_of({"jwt": {"claims": claims}}, None, data.decode(errors="replace"))


def _statement(data: bytes) -> object:
    from catalog.query.sql.statement import parse

    return parse(data.decode(errors="surrogateescape"))


def _entries(data: bytes) -> object:
    with suppress(ProofError, ValueError):
        Tile.parse(data[:64].decode(errors="replace"))
    return [Leaf.decode(entry) for entry in split_entries(Tile.parse("tile/entries/000"), data)]


def _golden(*patterns: str) -> Callable[[], list[bytes]]:
    def read() -> list[bytes]:
        found = (path for pattern in patterns for path in sorted(GOLDEN.glob(pattern)))
        return [path.read_bytes() for path in found if path.is_file()]

    return read


def _row_proof(data: bytes) -> object:
    key = VerifierKey.parse((GOLDEN / "rows" / "key").read_text().strip())
    return RowProof.read(data).verify([key], table="sales.orders", key={"region": "DE", "id": 7}, index=2)


def _row_parts(data: bytes) -> object:
    """The bytes as the `extra` of a proof file: mutations of base64 seldom come so far."""
    file = proof.read((GOLDEN / "rows" / "row.tlog-proof").read_bytes())
    return _row_proof(proof.write(replace(file, extra=data)))


def _row_extras() -> list[bytes]:
    return [proof.read(data).extra for data in _golden("rows/*.tlog-proof")()]


def _feed() -> list[bytes]:
    return [data for data in hostile_streams().values() if len(data) <= _SMALL]


def _texts(*texts: str) -> Callable[[], list[bytes]]:
    return lambda: [text.encode() for text in texts]


MERKLE = (LakeError, ProofError, ValueError)
_ROLES = ["strandline:reader:a.*", "x"]
TOKEN = json.dumps({"iss": "https://i", "sub": "ada", "roles": _ROLES, "scope": "a strandline/admin"})
_OBJECT = {"bucket": {"name": "b"}, "object": {"key": "landing/a/b/c+d.md", "versionId": "v", "sequencer": "0A"}}
EVENT = json.dumps({"Records": [{"eventName": "ObjectCreated:Put", "s3": _OBJECT}]})
RULE = json.dumps({"columns": {"id": "long", "o": {"type": "struct", "fields": []}}, "key": ["id"], "mode": "mor"})
TARGETS: dict[str, Target] = {
    **{
        suffix: Target(_rows(f"f.{suffix}"), _seeds_of(suffix), (FileRejected,))
        for suffix in ("jsonl", "json", "csv", "tsv", "txt", "md", "parquet", "csv.gz", "jsonl.zst")
    },
    "parquet-body": Target(lambda data: read_parquet_table(data, LIMITS), _seeds_of("parquet"), (FileRejected,)),
    "arrow": Target(lambda data: read_arrow_stream(data, LIMITS).validate(full=True), _feed, (FileRejected,)),
    "media": Target(_media, _seeds_of("png"), (FileRejected,)),
    "sql": Target(_statement, _texts(*STATEMENTS)),
    "token": Target(_token, _texts(TOKEN)),
    "event": Target(lambda data: parse_event(data.decode(errors="surrogateescape")), _texts(EVENT)),
    "rule": Target(lambda data: parse_rule(data).iceberg_schema(), _texts(RULE)),
    "position": Target(
        lambda data: parse_feed_position(data.decode(errors="surrogateescape")),
        _texts("42", "2026-03-01T12:00:00Z", "snapshot:7", "sequence:-1", "a-name", "--5"),
    ),
    "leaf": Target(Leaf.decode, _golden("timeline/leaf*.json", "as_of/leaf.json"), MERKLE),
    "entries": Target(_entries, _golden("timeline/tile/entries/*", "timeline/tile/entries/*/*"), MERKLE),
    "proof": Target(proof.read, _golden("timeline/proofs/*"), MERKLE),
    "checkpoint": Target(lambda data: Checkpoint.parse(split_note(data)[0]), _golden("timeline/checkpoints/*"), MERKLE),
    "policy": Target(
        Policy.parse, _texts("log a.b+1234+AQ==\nwitness w w.c+1234+AQ== https://w\ngroup g 1 w\nquorum g\n"), MERKLE
    ),
    "row-proof": Target(_row_proof, _golden("rows/*.tlog-proof"), MERKLE),
    "row-proof-parts": Target(_row_parts, _row_extras, MERKLE),
    "as-of": Target(read_as_of, _golden("as_of/*.json"), MERKLE),
    "feed": Target(from_ipc, _feed),
    "feed-lines": Target(
        lambda data: from_json_lines(data.decode(errors="surrogateescape").split("\n")), _golden("timeline/leaf*.json")
    ),
}


@cache
def seeds(name: str) -> list[bytes]:
    """The target's seeds, then the inputs of the corpus: those that once failed."""
    kept = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    return [*(TARGETS[name].seeds() or [b""]), *kept]
