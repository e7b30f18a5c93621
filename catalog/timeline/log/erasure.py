"""The record of an erasure: which objects it replaced by which, and the commitments of the rows that went.

An `erase` leaf has the RFC 6962 root over the record's lines as `content_root`, and their number as `content_count`.
The record permits exactly this, and nothing else (docs/spec/erasure.md): an object of the table's history may be
another one than was attested, and of each leaf's changes, and of the rows after it, those that the record lists are not
shown. All others must still give the roots that the leaves state. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import rfc8785

from catalog.core import s3_layout
from catalog.core.errors import Unverified
from catalog.merkle.tree import leaf_hash, root

FORMAT = "strandline/erasure@v1"
ERASURE_PROPERTY = "strandline.erasure"
"""The table property that names the last erasure: the sequencer reads its record, and appends the leaf."""
MAX_REASON = 1000
KEYS_SUFFIX, DONE_SUFFIX = ".keys", ".done"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"[0-9a-f]{32}")


class Replaced(NamedTuple):
    """An object of the table's history, and the one in its place; `new_path` is None if there is none."""

    path: str
    length: int
    sha256: str
    new_path: str | None
    new_length: int | None
    new_sha256: str | None


class ErasedChange(NamedTuple):
    """A change that is not shown any more: its position among all changes of the leaf, and its RFC 6962 leaf hash."""

    sequence: int
    position: int
    hash: str


class ErasedRow(NamedTuple):
    """A row digest that main had after each leaf from `first` to `last` that states rows (sequences of the table)."""

    digest: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure of rows of one table."""

    id: str
    table_uuid: str
    reason: str
    objects: tuple[Replaced, ...]
    changes: tuple[ErasedChange, ...]
    rows: tuple[ErasedRow, ...]

    @property
    def content_root(self) -> str:
        return root(leaf_hash(line) for line in self._lines()).hex()

    @property
    def content_count(self) -> int:
        return 1 + len(self.objects) + len(self.changes) + len(self.rows)

    def encode(self) -> bytes:
        return b"\n".join(self._lines()) + b"\n"

    def _lines(self) -> list[bytes]:
        header = {"format": FORMAT, "id": self.id, "reason": self.reason, "table_uuid": self.table_uuid}
        lines: list[Any] = [header]
        lines += [["object", *entry] for entry in sorted(self.objects, key=lambda entry: entry.path)]
        lines += [["change", *entry] for entry in sorted(self.changes)]
        lines += [["row", *entry] for entry in sorted(self.rows)]
        return [rfc8785.dumps(line) for line in lines]

    @classmethod
    def decode(cls, data: bytes) -> Erasure:
        """Parses a record strictly: Unverified unless the bytes are what `encode` would write."""
        try:
            header, *lines = (json.loads(line) for line in data.split(b"\n")[:-1])
            kinds: dict[str, list[list[Any]]] = {"object": [], "change": [], "row": []}
            for kind, *values in lines:
                kinds[kind].append(values)
            erasure = cls(
                header["id"],
                header["table_uuid"],
                header["reason"],
                tuple(Replaced(*values) for values in kinds["object"]),
                tuple(ErasedChange(*values) for values in kinds["change"]),
                tuple(ErasedRow(*values) for values in kinds["row"]),
            )
            erasure._check_types()
            if erasure.encode() != data:
                raise ValueError("it is not in its canonical form")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Unverified(f"not the record of an erasure: {data[:80]!r} ({error})") from None
        return erasure

    def _check_types(self) -> None:
        texts = (self.id, self.table_uuid, self.reason)
        if any(type(text) is not str for text in texts) or not _ID.fullmatch(self.id):
            raise ValueError("its header is not that of an erasure")
        for entry in self.objects:
            _check_object(entry.path, entry.length, entry.sha256)
            if entry[3:] != (None, None, None):
                _check_object(*entry[3:])
        for change in self.changes:
            if not (_is_count(change.sequence) and _is_count(change.position) and _is_digest(change.hash)):
                raise ValueError("a change has not a sequence, a position and a hash")
        for row in self.rows:
            if not (_is_digest(row.digest) and _is_count(row.first) and _is_count(row.last)):
                raise ValueError("a row has not a digest and two sequences")
        _check_distinct(entry.path for entry in self.objects)
        _check_distinct(entry.new_path for entry in self.objects if entry.new_path is not None)
        _check_distinct((change.sequence, change.position) for change in self.changes)


def erasure_key(table_uuid: str, erasure_id: str) -> str:
    """The record's key in the lake's bucket."""
    return f"{s3_layout.ERASURES}{table_uuid}/{erasure_id}"


def erased_keys_key(table_uuid: str, erasure_id: str) -> str:
    """The object with the key digests of the erased rows, 32 bytes each, until the erasure is complete."""
    return erasure_key(table_uuid, erasure_id) + KEYS_SUFFIX


def is_erasure_id(text: str | None) -> bool:
    return text is not None and _ID.fullmatch(text) is not None


def _check_object(path: object, length: object, digest: object) -> None:
    if type(path) is not str or not _is_count(length) or not _is_digest(digest):
        raise ValueError(f"the object {path!r:.80} has not a length and a SHA-256")


def _check_distinct(values: Iterable[object]) -> None:
    listed = list(values)
    if len(set(listed)) < len(listed):
        raise ValueError("it lists one thing twice")


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_digest(value: object) -> bool:
    return type(value) is str and _SHA256.fullmatch(value) is not None
