"""Position deletes: which delete files apply to a data file, and the positions they delete in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import DataFile, ManifestEntry

# Reserved by the Iceberg specification, "Reserved Field IDs": the columns of a position-delete file.
PATH_ID, POSITION_ID = 2147483546, 2147483545

Positions: TypeAlias = npt.NDArray[np.int64]
RowMask: TypeAlias = npt.NDArray[np.bool_]


class DeleteIndex:
    """Maps a data file to the position-delete files of its snapshot that apply to it. Reads no file."""

    def __init__(self, deletes: Iterable[ManifestEntry]) -> None:
        self._by_path: dict[str, list[ManifestEntry]] = {}
        self._by_partition: dict[tuple[int, Any], list[ManifestEntry]] = {}
        for entry in deletes:
            path = referenced_path(entry.data_file)
            if path is not None:
                self._by_path.setdefault(path, []).append(entry)
            else:
                self._by_partition.setdefault(_partition(entry.data_file), []).append(entry)

    def own(self, data: ManifestEntry) -> tuple[ManifestEntry, ...]:
        """The delete files that apply to this data file and to no other."""
        return _not_older(self._by_path.get(data.data_file.file_path, ()), data)

    def shared(self, data: ManifestEntry) -> tuple[ManifestEntry, ...]:
        """The delete files of the data file's partition that may name it among others."""
        if not self._by_partition:
            return ()
        path = data.data_file.file_path
        deletes = self._by_partition.get(_partition(data.data_file), ())
        return _not_older((entry for entry in deletes if _may_name(entry.data_file, path)), data)


def referenced_path(file: DataFile) -> str | None:
    """The one data file that a delete file names, if its bounds say that there is only one."""
    lower, upper = (file.lower_bounds or {}).get(PATH_ID), (file.upper_bounds or {}).get(PATH_ID)
    return lower.decode() if lower and lower == upper else None


def deleted_positions(
    deletes: Iterable[ManifestEntry], path: str, read: Callable[[DataFile], Mapping[str, Any]]
) -> Positions:
    """The positions that the delete files name in one data file: unordered, and repeated if two files name one.

    `read` gives a delete file's positions by data file path (see `read_position_deletes`); it is called once for each.
    """
    named = (read(entry.data_file).get(path) for entry in deletes)
    parts = [np.asarray(positions, dtype=np.int64) for positions in named if positions is not None]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def live_rows(rows: int, deleted: Positions) -> RowMask:
    """Which of a file's rows are not deleted."""
    mask = np.ones(rows, dtype=bool)
    mask[deleted] = False
    return mask


def _partition(file: DataFile) -> tuple[int, Any]:
    return file.spec_id, file.partition


def _not_older(deletes: Iterable[ManifestEntry], data: ManifestEntry) -> tuple[ManifestEntry, ...]:
    """A position delete applies to data of its own commit and of all before it."""
    added = data.sequence_number or 0
    return tuple(entry for entry in deletes if (entry.sequence_number or 0) >= added)


def _may_name(file: DataFile, path: str) -> bool:
    """Whether a delete file's bounds allow that it names the data file."""
    lower, upper = ((bounds or {}).get(PATH_ID) for bounds in (file.lower_bounds, file.upper_bounds))
    name = path.encode()
    # Writers may truncate bounds; a truncated upper bound still covers what begins with it.
    return (lower is None or lower <= name) and (upper is None or name <= upper or name.startswith(upper))
