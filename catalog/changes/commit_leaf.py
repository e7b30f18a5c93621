"""The fields of a timeline leaf that a change set is verified against. Verifiers parse leaves here and nowhere else.

A verifier gets them from a leaf that it already trusts, or parses them here from the bytes that an inclusion proof
covers. The proof shows that the sequencer signed these bytes, not that they are well-formed: parsing is strict, and by
the rules of every other proof (catalog/timeline/log/leaf_rules.py), so that no two readers take one leaf for two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Protocol, TypeAlias

from catalog.core.errors import Unverified
from catalog.timeline import parse_shown_leaf

MAIN: Final = "main"

Demand: TypeAlias = Literal["lake", "writer"]
"""Who must have computed a changes_root: the lake, from the objects; or at least the writer of the commit."""

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
    state_digest: str | None
    state_root: str | None
    moves_rows: bool
    """Whether the rows of main may differ after the leaf: a feed has a change set for it."""


def parse_leaf(entry: bytes) -> ParsedLeaf:
    """Parses a leaf; Unverified unless it is a leaf of the timeline in its one canonical form.

    Nothing here shows that the leaf is in a log.
    """
    try:
        leaf = parse_shown_leaf(entry)
    except Unverified as error:
        raise Unverified(f"the evidence is not the leaf of a commit: {error.message}") from None
    return ParsedLeaf(**{field.name: getattr(leaf, field.name) for field in fields(ParsedLeaf)})


def parse_snapshot_id(value: Any) -> int:
    """A snapshot id as leaves and feeds have it: a decimal in text, of at most 64 bits; ValueError for other values."""
    if not isinstance(value, str) or not _SNAPSHOT_ID.fullmatch(value) or not -(2**63) <= int(value) < 2**63:
        raise ValueError(f"{value!r:.80} is not a snapshot id")
    return int(value)
