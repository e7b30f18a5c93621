"""The leaf: one commit, or one move of a reference, as a canonical JSON record. Its hash is in the tree.

Canonical means RFC 8785, so that any language encodes the same facts to the same bytes. JSON numbers are exact only
below 2**53, and Iceberg's snapshot ids have 63 bits: ids are decimal strings here.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any

from catalog.core.errors import Invalid, Unverified

FORMAT = "strandline/commit@v2"
MAX_BYTES = 1664
"""A leaf with every digest, of a table with the longest names that Glue takes (255 characters each), has 1,654."""
MAIN = "main"

ATTESTED_BY_LAKE = "lake"
ATTESTED_BY_WRITER = "writer"

RESET = "reset"
"""Main moved to a snapshot that neither follows nor precedes the one it was at (or to none): its writer named another
parent, or no parent. The leaf's changes are from where main was, so every row that disappeared is among them."""

# Iceberg's names for the operation of a snapshot, and ours for the events that add no snapshot.
SNAPSHOT_OPERATIONS = frozenset({"append", "replace", "overwrite", "delete"})
REFERENCE_OPERATIONS = frozenset(
    {
        "create",  # the table exists; snapshot_id is null until something is written
        "rename",  # the same table_uuid under another name
        "drop",  # the table is gone from the catalog
        "rollback",  # a branch moved back to an ancestor of its snapshot
        "branch",  # a branch was created, or moved forward to a descendant of its snapshot (fast-forward)
        RESET,
        "tag",  # a tag was created or moved
        "unref",  # a branch or tag was removed
        "schema",  # the current schema changed
        "transaction",  # main moved to the snapshot that a transaction over several tables had staged
        "metadata",  # anything else in the table's metadata: properties, partition spec, expiry
        "erase",  # rows went from the history's objects: content_root is of its record, see erasure.py
        "vectors",  # a vector table offers a version: for the leaf's fields see vector_events.py
    }
)
TRANSACTION = "transaction"
ERASE = "erase"
MOVES_OF_MAIN = frozenset({"rollback", "branch", RESET, TRANSACTION})
"""The operations other than snapshots that change the rows of main, when their reference is main."""

_WITHOUT_ROWS = frozenset({"drop", "vectors"})
STATE_MISSING = ("size", "unreadable", "duplicate-key", "off")
"""The reasons for which a leaf has no state_digest, or no state_root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One record of the timeline. Every field is always present; null means that there is no value.

    `sequence` numbers this table's own leaves from 0 without gaps, so that a missing leaf is noticed. `ref` is the
    reference that is at `snapshot_id` from this leaf on: "main" in an ordinary commit, and in every leaf about the
    table as a whole (create, rename, schema, metadata, drop), which restates where main is. A null `ref`: no reference
    led to the snapshot when it was sequenced. In a leaf that moves a reference, `parent_id` is the snapshot it was at
    before; in a leaf with ref "main" it always is main's previous snapshot as the timeline knows it, whatever parent
    the snapshot itself names. `metadata_sha256` is over the metadata file from which the sequencer took the event: a
    table's last leaf covers its metadata file byte for byte. `changes_root` and `changes_count` are of the row changes
    from `parent_id` to `snapshot_id`, under the schema of the leaf; null when they were not computed (docs/adr/0006).

    `attested` says who computed `content_root` and `changes_root`: "lake", the sequencer did, from the objects;
    "writer", they are as a writer staged them; null, the leaf has no changes_root. `map_root` is the root of the map
    of all tables after this leaf (table_map.py), in the last leaf of each batch; null in all others. Each signed
    checkpoint ends with the last leaf of a batch, so every checkpoint has a map.

    `rows_digest` is only in the leaf of a commit that rewrote files and states that it changed no row: the multiset
    digest (docs/row-digest.md) of the rows in the files that it removed, and therefore in those that it added.

    `state_digest` is the multiset digest of all of main's rows after the leaf, read under the leaf's schema, and
    `state_root` the root of the state map of a table with a key (docs/spec/timeline.md). The lake computes both from
    the files, never a writer. Only leaves with ref "main" have them; `state_missing` says why one of them is null.

    The leaves of a transaction are adjacent. `content_count` of each is the number of them that follow, and
    `content_root` is over those. All take effect at the index of the last one, so at any index all of them do, or none.
    """

    table: str
    table_uuid: str
    snapshot_id: int | None
    parent_id: int | None
    sequence: int
    committed_ms: int
    sequenced_ms: int
    operation: str
    ref: str | None
    schema_sha256: str | None
    metadata_sha256: str | None
    manifest_list_sha256: str | None = None
    content_root: str | None = None
    content_count: int = 0
    changes_root: str | None = None
    changes_count: int | None = None
    rows_digest: str | None = None
    attested: str | None = None
    map_root: str | None = None
    state_digest: str | None = None
    state_root: str | None = None
    state_missing: str | None = None

    @property
    def is_snapshot(self) -> bool:
        """Whether the leaf adds a snapshot, rather than move a reference."""
        return self.operation not in REFERENCE_OPERATIONS

    @property
    def following(self) -> int:
        """How many leaves of its transaction follow. The leaf takes effect at the index of the last of them."""
        return self.content_count if self.operation == TRANSACTION else 0

    @property
    def states_rows(self) -> bool:
        """Whether the leaf says which rows main has: a state_digest, or why there is none."""
        return self.ref == MAIN and self.operation not in _WITHOUT_ROWS

    @property
    def moves_rows(self) -> bool:
        """Whether the rows of main may differ after the leaf. No other leaf changes any."""
        return self.ref == MAIN and (self.is_snapshot or self.operation in MOVES_OF_MAIN)

    def encode(self) -> bytes:
        """The leaf's bytes: RFC 8785. Invalid when they are over MAX_BYTES, which only very long names cause.

        Without a map_root, room for one is required: any leaf may turn out to be the last of its batch.
        """
        record: dict[str, Any] = {field: getattr(self, field) for field in _STORED}
        record["format"] = FORMAT
        for field in ("snapshot_id", "parent_id"):
            record[field] = None if record[field] is None else str(record[field])
        for field, value in record.items():
            exact = type(value) is int and abs(value) < 2**53 if field in _NUMBERS else type(value) is str
            if value is not None and not exact:
                expected = "an integer below 2**53" if field in _NUMBERS else "text"
                raise ValueError(f"{field} is not {expected}: {value!r:.80}")
        # For a flat record of text, null and exact integers under ASCII names, this is RFC 8785 (a test compares
        # the two). It takes a fifth of the time of a general encoder, which was half of the time to sequence a leaf.
        encoded = _CANONICAL.encode(record).encode()
        if len(encoded) + (_MAP_ROOT_BYTES if self.map_root is None else 0) > MAX_BYTES:
            raise Invalid(
                f"the leaf of {self.table} has {len(encoded)} bytes, over the limit of {MAX_BYTES}: give the "
                "table or the reference a shorter name",
                subject=self.table,
            )
        return encoded

    @classmethod
    def decode(cls, data: bytes) -> Leaf:
        """Parses a leaf strictly: Unverified unless the bytes are exactly what `encode` would write."""
        try:
            match = _PATTERN.fullmatch(data.decode())
            if match is None:
                check_format(json.loads(data)["format"])
                raise ValueError("it is not in its canonical form")
            record: dict[str, Any] = match.groupdict()
            for name in _INTEGERS:
                if (digits := record[name]) is not None:
                    record[name] = number = int(digits)
                    if len(digits) > 15 and name in _NUMBERS and abs(number) >= 2**53:
                        raise ValueError(f"its {name} is not exact")
            if b"\\" in data:
                record |= {name: json.loads(f'"{text}"') for name, text in record.items() if type(text) is str}
            return cls(**record)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Unverified(f"not a leaf of the timeline: {data[:80]!r} ({error})") from None


def is_like_main(ref: str) -> bool:
    """Whether a reference other than main has a name that a reader could take for main.

    Case, width and style of the letters do not count, nor characters that are not seen. Letters of other scripts that
    look the same do.

    >>> is_like_main("MAIN"), is_like_main("main "), is_like_main("main"), is_like_main("maintenance")
    (True, True, False, False)
    >>> is_like_main("ma\u200bin"), is_like_main("main\ufe0f")
    (True, True)
    """
    seen = (character for character in unicodedata.normalize("NFKC", ref) if not _is_unseen(character))
    return ref != MAIN and "".join(seen).casefold() == MAIN


def _is_unseen(character: str) -> bool:
    """Whether it is a control, format or space character, a variation selector or a filler."""
    return unicodedata.category(character) in ("Cc", "Cf", "Zs", "Zl", "Zp") or character in _UNSEEN


def check_format(format_: object) -> None:
    """ValueError, which says what to do, unless it is this version's format."""
    if format_ == FORMAT:
        return
    if isinstance(format_, str) and format_.startswith("strandline/commit@"):
        raise ValueError(f"its format is {format_}, and this version reads only {FORMAT}: sequence the tables again")
    raise ValueError(f"its format is {format_!r:.80}")


_UNSEEN = frozenset(map(chr, (0x034F, 0x115F, 0x1160, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_MAP_ROOT_BYTES = len('"' + "0" * 64 + '"') - len("null")
_STORED = tuple(field.name for field in fields(Leaf))
_NUMBERS = frozenset({"sequence", "committed_ms", "sequenced_ms", "content_count", "changes_count"})
_IDS = frozenset({"snapshot_id", "parent_id"})
_INTEGERS = tuple(sorted(_NUMBERS | _IDS))
_REQUIRED = _NUMBERS - {"changes_count"} | {"table", "table_uuid", "operation"}


def _pattern() -> re.Pattern[str]:
    """Matches exactly the canonical leaves: parsing by it also shows that the bytes have no other spelling."""
    number = "0|-?[1-9][0-9]{0,15}"
    id_ = "0|-?[1-9][0-9]{0,18}"
    plain = r'[^"\\\x00-\x1f]*'
    text = plain + r'(?:\\(?:["\\bfnrt]|u00(?:0[0-7bef]|1[0-9a-f]))' + plain + ")*"
    parts = list[str]()
    for name in sorted((*_STORED, "format")):
        if name == "format":
            parts.append(f'"format":"{re.escape(FORMAT)}"')
            continue
        value = f"(?P<{name}>{number if name in _NUMBERS else id_ if name in _IDS else text})"
        value = value if name in _NUMBERS else f'"{value}"'
        parts.append(f'"{name}":' + (value if name in _REQUIRED else f"(?:null|{value})"))
    return re.compile(r"\{" + ",".join(parts) + r"\}")


_PATTERN = _pattern()


def canonical_sha256(value: Any) -> str:
    """SHA-256, in hex, over a JSON value's canonical form; integers from 2**53 on are hashed as decimal strings."""
    import rfc8785  # not above: whoever only verifies leaves needs nothing but the standard library

    return sha256(rfc8785.dumps(_exact(value))).hexdigest()


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_exact(item) for item in value]
    if isinstance(value, int) and abs(value) >= 2**53:
        return str(value)
    return value
