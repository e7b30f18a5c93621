"""The fields of a timeline leaf that a change set is verified against. Verifiers parse leaves here and nowhere else.

A verifier gets them from a leaf that it already trusts, or parses them here from the bytes that an inclusion proof
covers. The proof shows that the sequencer signed these bytes, not that they are well-formed: parsing is strict, so that
no two readers take one leaf for two. Uses nothing of catalog.timeline, so that a feed can be verified without it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from catalog.core.errors import Unverified
from catalog.core.strict_json import EXACT, parse_strictly

LEAF_FORMAT: Final = "strandline/commit@v2"
MAIN: Final = "main"
MAX_ENTRY_BYTES: Final = 0xFFFF
"""The longest entry that an entry bundle can hold (c2sp.org/tlog-tiles)."""

Demand: TypeAlias = Literal["lake", "writer"]
"""Who must have computed a changes_root: the lake, from the objects; or at least the writer of the commit."""

_OPERATIONS_WITHOUT_CHANGES = frozenset({"create", "rename", "drop", "tag", "unref", "schema", "metadata"})
"""Operations that leave main's rows as they were. For every other operation, a feed must have a change set."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SNAPSHOT_ID = re.compile(r"0|-?[1-9][0-9]{0,18}")


class CommitLeaf(Protocol):
    """The leaf of a commit, reduced to the fields that describe its changes."""

    @property
    def table(self) -> str: ...
    @property
    def table_uuid(self) -> str: ...
    @property
    def snapshot_id(self) -> int | None: ...
    @property
    def parent_id(self) -> int | None: ...
    @property
    def committed_ms(self) -> int: ...
    @property
    def schema_sha256(self) -> str | None: ...
    @property
    def changes_root(self) -> str | None: ...
    @property
    def changes_count(self) -> int | None: ...
    @property
    def attested(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class ParsedLeaf:
    """A CommitLeaf parsed from its bytes, with its position in the table's history."""

    table: str
    table_uuid: str
    snapshot_id: int | None
    parent_id: int | None
    committed_ms: int
    sequenced_ms: int
    schema_sha256: str | None
    changes_root: str | None
    changes_count: int | None
    sequence: int
    operation: str
    ref: str | None
    attested: str | None

    @property
    def moves_rows(self) -> bool:
        """Whether the rows of main may differ after the leaf: a feed has a change set for it."""
        return self.ref == MAIN and self.operation not in _OPERATIONS_WITHOUT_CHANGES


def parse_leaf(entry: bytes) -> ParsedLeaf:
    """Parses a leaf; Unverified unless each field has its type and the bytes are the fields' one canonical form.

    Fields that are not listed in ParsedLeaf may have any value. Nothing here shows that the leaf is in a log.
    """
    try:
        record = parse_strictly(entry, max_bytes=MAX_ENTRY_BYTES)
        if not isinstance(record, dict) or record.get("format") != LEAF_FORMAT:
            stated = record.get("format") if isinstance(record, dict) else None
            raise ValueError(f"its format is {stated!r:.80}, and this version reads only {LEAF_FORMAT}")
        # RFC 8785 for a record of text, null and exact integers under ASCII names, as leaves are.
        if json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() != entry:
            raise ValueError("it is not in its canonical form")
        leaf = ParsedLeaf(**{name: parse(record[name]) for name, parse in _FIELDS.items()})
        if (leaf.changes_root is None) != (leaf.changes_count is None):
            raise ValueError("it has only one of changes_root and changes_count")
        if leaf.moves_rows and leaf.snapshot_id is None and leaf.operation != "reset":
            raise ValueError("it moves main, but to no snapshot")
    except (ValueError, KeyError, TypeError) as error:
        raise Unverified(f"the evidence is not the leaf of a commit: {entry[:80]!r} ({error})") from None
    return leaf


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r:.80} is not text")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < EXACT:
        raise ValueError(f"{value!r:.80} is not a number")
    return value


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise ValueError(f"{value!r:.80} is not a SHA-256 in hex")
    return value


def parse_snapshot_id(value: Any) -> int:
    """A snapshot id as leaves and feeds have it: a decimal in text, of at most 64 bits; ValueError for other values."""
    if not isinstance(value, str) or not _SNAPSHOT_ID.fullmatch(value) or not -(2**63) <= int(value) < 2**63:
        raise ValueError(f"{value!r:.80} is not a snapshot id")
    return int(value)


def _reference(value: Any) -> str:
    """A reference. One that differs from main only in case or width is refused: readers would take it for main."""
    name = _text(value)
    if name != MAIN and unicodedata.normalize("NFKC", name).strip().casefold() == MAIN:
        raise ValueError(f"its reference {name!r:.80} can be mistaken for main")
    return name


def _attestor(value: Any) -> str:
    if value not in ("lake", "writer"):
        raise ValueError(f"{value!r:.80} is neither lake nor writer")
    return str(value)


def _optional(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else parse(value)


_FIELDS: Final[dict[str, Callable[[Any], Any]]] = {
    "table": _text,
    "table_uuid": _text,
    "snapshot_id": _optional(parse_snapshot_id),
    "parent_id": _optional(parse_snapshot_id),
    "committed_ms": _number,
    "sequenced_ms": _number,
    "schema_sha256": _optional(_digest),
    "changes_root": _optional(_digest),
    "changes_count": _optional(_number),
    "sequence": _number,
    "operation": _text,
    "ref": _optional(_reference),
    "attested": _optional(_attestor),
}
