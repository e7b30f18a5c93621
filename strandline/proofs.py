"""Proof files, as `lake.prove` returns them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.verify import VerifiedCommit


@dataclass(frozen=True)
class Proof:
    """A c2sp.org/tlog-proof@v1 file that includes its leaf. Anybody can check it, offline, with the public key.

    >>> proof = lake.prove(tides.history().rows()[-1])
    >>> proof.data.startswith(b"c2sp.org/tlog-proof@v1")
    True
    """

    data: bytes = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the proof file.

        >>> lake.prove(tides.history().rows()[0]).save("0.tlog-proof")
        >>> strandline.verify.proof("0.tlog-proof", key=key, table="silver.tides", uuid=tides.uuid).sequence
        0
        """
        Path(path).write_bytes(self.data)

    def verify(
        self,
        *,
        key: str | Iterable[str] | None = None,
        table: str | Iterable[str],
        uuid: str,
        origin: str | None = None,
        policy: bytes | str | os.PathLike[str] | None = None,
    ) -> VerifiedCommit:
        """Checks the proof offline and returns the commit that it proves: see `strandline.verify.proof`.

        >>> proof = lake.prove(tides.history().rows()[-1])
        >>> proof.verify(key=key, table="silver.tides", uuid=tides.uuid).operation
        'append'
        """
        from strandline.verify import proof

        return proof(self.data, key=key, table=table, uuid=uuid, origin=origin, policy=policy)
