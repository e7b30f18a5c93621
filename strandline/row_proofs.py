"""Proofs of rows: what `lake.prove_row` and `lake.prove_answer` return, and their offline verifiers.

`strandline.verify.row` and `strandline.verify.answer` are the verifiers' public names.
They need nothing but `cryptography`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from strandline.as_of import _ms
from strandline.errors import Invalid, Unverified


@dataclass(frozen=True, slots=True)
class VerifiedRow:
    """What a proof shows: after leaf `index` of the timeline the table had a row of this key, or none (`exists`).

    `digest`: the row's digest; `values`: its columns, if the proof shows them.

    >>> proof = lake.prove_row("silver.tides", {"station": "Brest"})
    >>> shown = strandline.verify.row(proof, key=key, table="silver.tides", row={"station": "Brest"}, at=proof.index)
    >>> shown.exists, shown.values["station"]
    (True, 'Brest')
    """

    table: str
    uuid: str
    key: dict[str, Any]
    exists: bool
    index: int
    digest: bytes | None
    values: dict[str, Any] | None


@dataclass(frozen=True)
class RowProof:
    """A proof that a row was, or was not, in a table. Anybody can check it, offline, with the public key.

    >>> proof = lake.prove_row("silver.tides", {"station": "Brest"})
    >>> proof.verify(key=key, table="silver.tides", row={"station": "Brest"}, at=proof.index).exists
    True
    """

    data: bytes = field(repr=False)

    @property
    def index(self) -> int:
        """The index of the timeline that it is about, by its own account.

        >>> lake.prove_row("silver.tides", {"station": "Brest"}).index > 0
        True
        """
        from catalog.merkle.proof import read

        return read(self.data).index

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the proof file.

        >>> lake.prove_row("silver.tides", {"station": "Brest"}).save("brest.tlog-proof")
        """
        Path(path).write_bytes(self.data)

    def verify(self, **expected: Any) -> VerifiedRow:
        """Checks the proof offline: see `strandline.verify.row`.

        >>> proof = lake.prove_row("silver.tides", {"station": "Brest"})
        >>> proof.verify(key=key, table="silver.tides", row={"station": "Brest"}, at=proof.index).values["station"]
        'Brest'
        """
        return row(self, **expected)


@dataclass(frozen=True, slots=True)
class VerifiedAnswer:
    """What a proof shows: of `asked` keys the table had these rows after leaf `index` of the timeline, and no others.

    >>> proof = lake.prove_answer("silver.tides", {"station": ["Brest", "Atlantis"]})
    >>> answer = proof.verify(key=key, table="silver.tides", keys={"station": ["Brest", "Atlantis"]}, at=proof.index)
    >>> answer.asked, [row.values["station"] for row in answer.rows]
    (2, ['Brest'])
    """

    table: str
    uuid: str
    index: int
    asked: int
    rows: tuple[VerifiedRow, ...]


@dataclass(frozen=True)
class AnswerProof:
    """A proof of all rows of some keys. Anybody can check it, offline, with the public key.

    >>> lake.prove_answer("silver.tides", {"station": ["Brest"]}).index > 0
    True
    """

    data: bytes = field(repr=False)

    @property
    def index(self) -> int:
        """The index of the timeline that it is about, by its own account.

        >>> lake.prove_answer("silver.tides", {"station": ["Brest"]}).index > 0
        True
        """
        return RowProof(self.data).index

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the proof file.

        >>> lake.prove_answer("silver.tides", {"station": ["Brest"]}).save("answer.tlog-proof")
        """
        Path(path).write_bytes(self.data)

    def verify(self, **expected: Any) -> VerifiedAnswer:
        """Checks the proof offline: see `strandline.verify.answer`.

        >>> proof = lake.prove_answer("silver.tides", {"station": ["Atlantis"]})
        >>> proof.verify(key=key, table="silver.tides", keys={"station": ["Atlantis"]}, at=proof.index).rows
        ()
        """
        return answer(self, **expected)


def row(
    file: bytes | str | os.PathLike[str] | RowProof,
    *,
    table: str,
    row: Mapping[str, Any],
    at: int | datetime | None = None,
    key: str | Iterable[str] | None = None,
    uuid: str | None = None,
    checkpoint: bytes | str | os.PathLike[str] | None = None,
    origin: str | None = None,
    policy: bytes | str | os.PathLike[str] | None = None,
) -> VerifiedRow:
    """Checks a file of `strandline prove row`: that the table had this row, or had none.

    `table`, `row` (key column -> value) and `at` (an index of the timeline, or a time with a zone): what you asked for.
    Without `at`, the point is the end of `checkpoint`, the newest one that you know (`lake.checkpoint()`), which the
    file must be against. It is also required for a time after the last leaf. `uuid`: the table that you know by this
    name, since a name can be reused. `key`, `origin` and `policy`: as in `strandline.verify.proof`.

    >>> proof = lake.prove_row("silver.tides", {"station": "Atlantis"})
    >>> strandline.verify.row(proof, key=key, table="silver.tides", row={"station": "Atlantis"}, at=proof.index).exists
    False
    """
    expected: dict[str, Any] = {"table": table, "at": at, "key": key, "uuid": uuid, "checkpoint": checkpoint}
    return _verified(file, [row], frozenset(), origin=origin, policy=policy, **expected).rows[0]


def answer(
    file: bytes | str | os.PathLike[str] | AnswerProof,
    *,
    table: str,
    keys: Mapping[str, Sequence[Any]] | None = None,
    ranges: Mapping[str, tuple[Any, Any]] | None = None,
    at: int | datetime | None = None,
    key: str | Iterable[str] | None = None,
    uuid: str | None = None,
    checkpoint: bytes | str | os.PathLike[str] | None = None,
    origin: str | None = None,
    policy: bytes | str | os.PathLike[str] | None = None,
) -> VerifiedAnswer:
    """Checks a file of `strandline prove answer`: of all these keys the table had the rows it shows, and no others.

    `keys` (key column -> values) and `ranges` (key column -> first and last, of whole numbers or days): what you asked
    for; the answer is about every combination. The rest as in `strandline.verify.row`.

    >>> proof = lake.prove_answer("silver.tides", {"station": ["Brest", "Atlantis"]})
    >>> checked = {"key": key, "table": "silver.tides", "at": proof.index}
    >>> len(strandline.verify.answer(proof, keys={"station": ["Brest", "Atlantis"]}, **checked).rows)
    1
    >>> strandline.verify.answer(proof, keys={"station": ["Atlantis"]}, **checked)
    Traceback (most recent call last):
    ...
    strandline.errors.Unverified: a row of silver.tides is not proven: ...
    """
    from catalog import LakeError
    from catalog.changes import KeySet

    asked = KeySet(dict(keys or {}), dict(ranges or {}))
    try:
        listed = asked.keys()
    except LakeError as error:
        raise Invalid(error.message) from None
    expected: dict[str, Any] = {"table": table, "at": at, "key": key, "uuid": uuid, "checkpoint": checkpoint}
    found = _verified(file, listed, asked.ranged, origin=origin, policy=policy, **expected)
    return replace(found, rows=tuple(one for one in found.rows if one.exists))


def _verified(
    file: Any,
    asked: Sequence[Mapping[str, Any]],
    ranged: frozenset[str],
    *,
    table: str,
    at: int | datetime | None,
    key: Any,
    uuid: str | None,
    checkpoint: Any,
    origin: str | None,
    policy: Any,
) -> VerifiedAnswer:
    """What the file shows of each key, also of those without a row."""
    from catalog import LakeError
    from catalog.changes import ExpectedRows
    from catalog.changes import RowProof as Parsed
    from catalog.merkle.checkpoint import Checkpoint
    from strandline.trust import checkpoint as open_signed
    from strandline.trust import read_source, trust_in

    keys, trusted = trust_in(key, policy)
    newest = None if checkpoint is None else open_signed(checkpoint, key=key, origin=origin, policy=policy)
    expected = ExpectedRows(
        table,
        asked,
        index=at if isinstance(at, int) else None,
        time_ms=_ms(at) if isinstance(at, datetime) else None,
        table_uuid=uuid,
        checkpoint=None if newest is None else Checkpoint(newest.origin, newest.size, newest.root),
        ranged=ranged,
    )
    try:
        found = Parsed.read(read_source(file)).verify_all(keys, origin, expected, policy=trusted)
    except LakeError as error:
        raise (Invalid if error.kind.name == "invalid" else Unverified)(error.message) from None
    rows = tuple(
        VerifiedRow(table, found.table_uuid, dict(each), one.exists, found.index, one.digest, one.values)
        for each, one in zip(asked, found.rows, strict=True)
    )
    return VerifiedAnswer(table, found.table_uuid, found.index, len(rows), rows)
