"""The offline verifier of as-of files: which snapshot a table had at a point in time, or that there was no such table.

`strandline.verify.as_of` is its public name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from strandline.errors import Invalid, Unverified

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class VerifiedTable:
    """What an as-of file shows about a table's name at one index of the timeline.

    `uuid` is None if there was no table of this name; `snapshot_id` is also None if it had no snapshot yet.

    With a file of `strandline timeline as-of silver.ebbs --at INDEX`:

    >>> ebbs = strandline.verify.as_of("silver.ebbs.as-of.json", table="silver.ebbs", at=index, key=key)
    >>> ebbs.uuid is None
    True
    """

    table: str
    uuid: str | None
    snapshot_id: int | None
    index: int


def as_of(
    file: bytes | str | os.PathLike[str],
    *,
    table: str,
    at: int | datetime,
    key: str | Iterable[str] | None = None,
    uuid: str | None = None,
    checkpoint: bytes | str | os.PathLike[str] | None = None,
    origin: str | None = None,
    policy: bytes | str | os.PathLike[str] | None = None,
) -> VerifiedTable:
    """Checks a file of `strandline timeline as-of`: which snapshot the table had, or that there was no such table.

    `table`, and `at` (an index of the timeline, or a time with a zone): what you asked for. `uuid`: the table that you
    know by this name, since a name can be reused. `checkpoint`: the newest checkpoint that you know
    (`lake.checkpoint()`); the file must be against it. It is required for a time after the last leaf, because a file
    against an older checkpoint could hide later commits. `key`, `origin` and `policy`: as in `strandline.verify.proof`.

    With a file of `strandline timeline as-of silver.tides --at INDEX`:

    >>> proven = strandline.verify.as_of("silver.tides.as-of.json", table="silver.tides", at=index, key=key)
    >>> proven.uuid == tides.uuid
    True
    >>> strandline.verify.as_of("silver.tides.as-of.json", table="silver.ebbs", at=index, key=key)
    Traceback (most recent call last):
        ...
    strandline.errors.Unverified: ...
    """
    from catalog import LakeError
    from catalog.merkle.checkpoint import Checkpoint
    from catalog.timeline import read_as_of
    from strandline.trust import checkpoint as open_signed
    from strandline.trust import read_source, trust_in

    keys, trusted = trust_in(key, policy)
    newest = None if checkpoint is None else open_signed(checkpoint, key=key, origin=origin, policy=policy)
    try:
        claim = read_as_of(read_source(file))
        claim.verify(
            keys,
            origin,
            table=table,
            time_ms=_ms(at) if isinstance(at, datetime) else None,
            index=None if isinstance(at, datetime) else at,
            table_uuid=uuid,
            checkpoint=None if newest is None else Checkpoint(newest.origin, newest.size, newest.root),
            policy=trusted,
        )
    except LakeError as error:
        raise (Invalid if error.kind.name == "invalid" else Unverified)(error.message) from None
    return VerifiedTable(claim.table, claim.table_uuid, claim.snapshot_id, claim.index)


def _ms(at: datetime) -> int:
    if at.tzinfo is None:
        raise Invalid(f"the time {at.isoformat()} has no time zone: add one, for example tzinfo=datetime.UTC")
    return (at - _EPOCH) // timedelta(milliseconds=1)
