"""Points in time on the timeline: the cut at a point, and the snapshot of a table there."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.core.errors import Invalid
from catalog.core.point_in_time import Moment, NamedSnapshot, PointInTime, SnapshotId, TimelineIndex
from catalog.timeline.reader.timeline import Cut, Timeline


def cut_at(timeline: Timeline, tables: Sequence[str], point: PointInTime) -> Cut:
    """The tables at one cut, each proven. NotFound when the timeline has no such index or name.

    Invalid for a snapshot id, which is a point of one table only.
    """
    match point:
        case TimelineIndex(index):
            return timeline.cut(tables, index=index)
        case Moment():
            return timeline.cut(tables, time_ms=point.ms)
        case NamedSnapshot(name):
            return timeline.cut(tables, name=name)
        case SnapshotId():
            raise Invalid(
                f"{point} is a snapshot of one table, not an index of the timeline: write FROM <table> VERSION AS OF "
                f"'{point}'"
            )


def snapshot_at(timeline: Timeline, table: str, point: PointInTime) -> int | None:
    """The id of the snapshot that the table's main was at; None when it had no snapshot or did not exist."""
    return cut_at(timeline, [table], point).snapshots[table]
