"""Proofs of single rows: what `lake.prove_row` returns, and their offline verifier.

`strandline.verify.row` is the verifier's public name. It needs nothing but `cryptography`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
    from catalog import LakeError
    from catalog.changes import RowProof as Parsed
    from catalog.merkle.checkpoint import Checkpoint
    from strandline.trust import checkpoint as open_signed
    from strandline.trust import read_source, trust_in

    keys, trusted = trust_in(key, policy)
    newest = None if checkpoint is None else open_signed(checkpoint, key=key, origin=origin, policy=policy)
    try:
        verified = Parsed.read(read_source(file)).verify(
            keys,
            origin,
            table=table,
            key=row,
            index=at if isinstance(at, int) else None,
            time_ms=_ms(at) if isinstance(at, datetime) else None,
            table_uuid=uuid,
            checkpoint=None if newest is None else Checkpoint(newest.origin, newest.size, newest.root),
            policy=trusted,
        )
    except LakeError as error:
        raise (Invalid if error.kind.name == "invalid" else Unverified)(error.message) from None
    return VerifiedRow(
        table, verified.table_uuid, dict(row), verified.exists, verified.index, verified.digest, verified.values
    )
