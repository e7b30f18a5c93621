"""A legal hold on a table: while it has one, nothing that it held can be lost.

It forbids what deletes data for good, or lets it be deleted: erasure, expiry and dropping the table. Writes go on: the
snapshots before them stay. Each setting and lifting is a commit, so the timeline has it.
"""

from __future__ import annotations

from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate

from catalog.core.errors import Conflict, Denied, Invalid
from catalog.iceberg import CommitIO
from catalog.tables.committer import AttemptResult, Committer
from catalog.tables.delta import Delta
from catalog.tables.glue_store import TableVersion

HOLD_PROPERTY = "strandline.legal-hold"
"""The table property; its value says why."""
MAX_REASON = 1000


def check_hold(version: TableVersion, what: str) -> None:
    """Denied if the table is under a hold. `what`: what it cannot be, for the message."""
    if hold := version.properties.get(HOLD_PROPERTY):
        raise Denied(
            f"{version.name} is under a legal hold ({hold}), so it cannot be {what} until an admin lifts it: "
            f"`strandline hold lift {version.name}`",
            subject=version.name,
        )


def set_hold(committer: Committer, name: str, reason: str) -> None:
    """Sets the hold in one commit. Conflict if the table has one already, for another reason."""
    if not reason.strip() or len(reason) > MAX_REASON:
        raise Invalid(f"give a reason of 1 to {MAX_REASON} characters: everybody who is refused reads it", subject=name)

    def attempt(version: TableVersion, io: CommitIO) -> AttemptResult:
        if (hold := version.properties.get(HOLD_PROPERTY)) not in (None, reason):
            raise Conflict(
                f"{name} is under a legal hold already ({hold}): lift it before you set another", subject=name
            )
        updates = () if hold else [SetPropertiesUpdate(updates={HOLD_PROPERTY: reason})]
        return updates, version.head(), Delta()

    committer.commit(name, attempt, branch=None)


def lift_hold(committer: Committer, name: str) -> str | None:
    """Lifts the hold in one commit. Returns its reason; None if there was none."""
    lifted: list[str | None] = []

    def attempt(version: TableVersion, io: CommitIO) -> AttemptResult:
        lifted[:] = [version.properties.get(HOLD_PROPERTY)]
        updates = [RemovePropertiesUpdate(removals=[HOLD_PROPERTY])] if lifted[0] is not None else ()
        return updates, version.head(), Delta()

    committer.commit(name, attempt, branch=None)
    return lifted[0]
