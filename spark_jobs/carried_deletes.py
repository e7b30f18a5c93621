"""Commits a rewrite although rows of its files were deleted meanwhile: the deletes are carried over to the new files.

A compaction takes minutes, and a table with writers has no minute without a delete. So its commit does not fail when
rows of its files are gone: it finds each of them in the new files, by row digest, and deletes it there. Equal rows have
equal digests, and which of them is deleted makes no difference. The commit is planned again after each lost race, as
every write of catalog.tables is, and deletes that were carried over before are not looked up again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from catalog import Conflict, Unverified
from catalog.changes import RowReader, RowsDigest, TouchedFile, row_digests
from catalog.iceberg import ROWS_COUNT, ROWS_DIGEST, FileReader, LiveFile, LiveFiles, RowMask
from catalog.tables import Delta, WritePlanner

PREFIX_BYTES = 16
"""Of each row digest: enough that two different rows never share one, also against somebody who chooses the rows."""

MAX_ROWS = 4_000_000
"""The driver's memory holds 33 bytes for each row of the new files: 132 MB."""


class RowIndex:
    """Finds rows in files by their digests. `digests`: for each file, the prefixes of its rows' digests in order."""

    def __init__(self, digests: Sequence[bytes]) -> None:
        prefixes = np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2)
        self._order = np.lexsort((prefixes[:, 1], prefixes[:, 0]))
        self._high, self._low = (prefixes[self._order, half] for half in (0, 1))
        self._starts = np.cumsum([0, *(len(part) // PREFIX_BYTES for part in digests)])
        self.deleted: npt.NDArray[np.bool_] = np.zeros(len(prefixes), dtype=bool)

    def delete(self, digest: bytes) -> bool:
        """Marks one row with this digest that is not marked yet; False if there is none."""
        high, low = np.frombuffer(digest[:PREFIX_BYTES], ">u8")
        first, last = (np.searchsorted(self._high, high, side) for side in ("left", "right"))
        for at in self._order[first:last][self._low[first:last] == low]:
            if not self.deleted[at]:
                self.deleted[at] = True
                return True
        return False

    def positions(self, file: int) -> npt.NDArray[np.int64]:
        """The marked rows of a file."""
        return np.flatnonzero(self.deleted[self._starts[file] : self._starts[file + 1]])

    def rows(self, file: int) -> int:
        return int(self._starts[file + 1] - self._starts[file])


class CarriedDeletes:
    """Plans the commit of a rewrite of `old` files, at the snapshot it was read from, to `new` ones.

    `rows`: the digest of the new files' rows. `digests`: see `RowIndex`.
    """

    def __init__(
        self,
        table: Table,
        schema: Schema,
        old: Mapping[str, LiveFile],
        new: Sequence[DataFile],
        digests: Sequence[bytes],
        rows: RowsDigest,
    ) -> None:
        self._reader, self._row_reader = FileReader(table.metadata, table.io), RowReader(table, schema)
        self._schema_id, self._old, self._new = schema.schema_id, old, new
        self._alive = dict[str, RowMask]()
        self._carried = dict[str, RowMask]()
        self._index, self.rows = RowIndex(digests), rows
        self.is_refused = False
        """Whether a plan was refused: then certainly nothing was committed."""

    def plan(self, planner: WritePlanner) -> Delta:
        """The delta for the table's current version. Requests: its new manifests and delete files, a read of each file
        with newly deleted rows, and a PUT for each new file with deletes."""
        version = planner.version
        if version.metadata.current_schema_id != self._schema_id:
            raise self._refused(f"the schema of {version.name} was changed while its files were rewritten: try again")
        live = LiveFiles.of(planner.io, planner.manifests, version.head(planner.branch), version.name)
        now = {file.file.file_path: file for file in live.data}
        removed = [now[path] for path in self._old if path in now]
        if not removed:
            raise self._refused(f"all rewritten files of {version.name} were replaced meanwhile: nothing is left to do")
        for path, old in self._old.items():
            self._carry(old, now.get(path))
        added = list[DataFile]()
        for number, file in enumerate(self._new):
            positions = self._index.positions(number)
            if len(positions) == self._index.rows(number):
                continue  # no row of it is left
            added.append(file)
            if len(positions):
                added.append(planner.files.write_deletes(file, positions, planner.io))
        carried = int(self._index.deleted.sum())
        return Delta(
            tuple(added),
            tuple(entry for file in removed for entry in (file.entry, *file.own)),
            mode="compact",
            reason=f"{len(removed)} files became {len(self._new)}, {carried} deletes were carried over",
            operation=Operation.REPLACE,
            properties={ROWS_DIGEST: self.rows.hex, ROWS_COUNT: str(self.rows.rows)},
        )

    def _carry(self, old: LiveFile, now: LiveFile | None) -> None:
        """Deletes in the new files what was deleted of an old one since; all of it if the file is gone."""
        path = old.file.file_path
        if now is not None and path not in self._carried and _same_deletes(old, now):
            return
        alive = self._alive_then(old)
        alive_now = np.zeros_like(alive) if now is None else self._reader.alive(now)
        gone, carried = alive & ~alive_now, self._carried.get(path, np.zeros_like(alive))
        if (alive_now & ~alive).any() or (carried & ~gone).any():
            raise self._refused("a rollback restored rows while their files were rewritten: try again")
        positions = np.flatnonzero(gone & ~carried)
        if not len(positions):
            return
        for rows in self._row_reader.read(TouchedFile(old.file, only=positions)):
            digests = row_digests(rows)
            for digest in digests:
                if not self._index.delete(digest.tobytes()):
                    raise Unverified(
                        f"a row of {path} is not in the files that it was rewritten to: nothing was committed"
                    )
            self.rows -= RowsDigest.of_digests(digests)
        self._carried[path] = gone

    def _refused(self, reason: str) -> Conflict:
        self.is_refused = True
        return Conflict(reason)

    def _alive_then(self, old: LiveFile) -> RowMask:
        path = old.file.file_path
        if path not in self._alive:
            self._alive[path] = self._reader.alive(old)
        return self._alive[path]


def _same_deletes(old: LiveFile, now: LiveFile) -> bool:
    return _paths(old) == _paths(now)


def _paths(live: LiveFile) -> set[Any]:
    return {entry.data_file.file_path for entry in live.deletes}
