"""One commit's changes to a table's rows, in Arrow, with the evidence that none is missing."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from strandline.errors import Unavailable
from strandline.rows import Rows

_HEAD = b"strandline:changes"


class ChangeSet(Rows):
    """What one commit did to a table's rows: `op` (INSERT, UPDATE, DELETE), the row `before` and the row `after`.

    It carries the commit's leaf and its proof. Nothing is proven until `strandline.verify.feed` has checked them.

    >>> for changes in tides.changes():
    ...     for change in changes:
    ...         print(change["op"], change["after"]["station"])
    INSERT Brest
    INSERT Newlyn
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        try:
            table = pa.ipc.open_stream(data).read_all()
            self._head: dict[str, Any] = json.loads((table.schema.metadata or {})[_HEAD])
            self._commit: dict[str, Any] = dict(self._head["commit"])
        except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
            raise Unavailable(f"the response is not a change set: {error}. Try again in a moment.") from None
        super().__init__(table.replace_schema_metadata(None))

    @property
    def commit(self) -> dict[str, Any]:
        """The commit: `index` in the timeline, `sequence` in the table, `snapshot_id`, `committed_ms`.

        >>> next(tides.changes()).commit["table"]
        'silver.tides'
        """
        return dict(self._commit)

    def to_bytes(self) -> bytes:
        """The change set with its evidence as an Arrow IPC stream. A feed file is a sequence of such streams.

        >>> with open("tides.arrows", "wb") as file:
        ...     written = [file.write(changes.to_bytes()) for changes in tides.changes()]
        >>> strandline.verify.feed("tides.arrows", key=key, table="silver.tides", uuid=tides.uuid).commits
        1
        """
        return self._data

    def _title(self) -> str:
        return f"{super()._title()}, commit {self._commit.get('index')} of {self._commit.get('table')}"
