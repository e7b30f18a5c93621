"""One table of the lake: its rows now and at earlier points in time, writes, changes and history."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Literal, Protocol

import pyarrow as pa

from strandline.changes import ChangeSet
from strandline.client import Client
from strandline.errors import Invalid
from strandline.problems import translated
from strandline.responses import Receipt
from strandline.rows import Result, Rows
from strandline.values import PointLike, point, sendable_rows

_COMMIT_COLUMNS: dict[str, Any] = {
    "index": pa.int64(),
    "sequence": pa.int64(),
    "operation": pa.string(),
    "ref": pa.string(),
    "snapshot_id": pa.int64(),
    "parent_id": pa.int64(),
    "committed": pa.timestamp("ms", "UTC"),
    "sequenced": pa.timestamp("ms", "UTC"),
}


class _Lake(Protocol):
    """The part of `Lake` that a table uses."""

    @property
    def endpoint(self) -> str: ...
    @property
    def client(self) -> Client: ...
    def sql(self, sql: str, *, fresh: bool = False) -> Result: ...


class Table:
    """A table by its name. `lake.table` returns it without a request; a missing table raises NotFound at first use.

    >>> lake.table("silver.tides")
    <strandline.Table silver.tides>
    """

    def __init__(self, lake: _Lake, name: str) -> None:
        self._lake, self.name, self._clause = lake, name, ""

    @property
    def uuid(self) -> str:
        """The table's identity, which survives renames. Keep it to verify proofs and feeds. One request.

        >>> len(tides.uuid)
        36
        """
        return str(self.describe()["uuid"])

    def describe(self) -> dict[str, Any]:
        """Columns with their statistics, key, partitions, size and freshness, from the table's metadata alone.

        >>> described = tides.describe()
        >>> described["rows"], described["key"]
        (2, ['station'])
        """
        with translated(self._lake.endpoint):
            return self._lake.client.describe(self.name)

    def schema(self) -> pa.Schema:
        """The columns as Arrow types.

        >>> tides.schema().names
        ['station', 'metres']
        """
        return self.rows(limit=0).schema

    def rows(self, columns: Sequence[str] = (), *, where: str | None = None, limit: int | None = None) -> Result:
        """All rows, or those for which `where` (an SQL condition) is true, at most `limit`.

        Reads the newest commit, even if it is not in the timeline yet. For anything more, use `lake.sql`.

        >>> tides.rows(["station"], where="metres > 4").rows()
        [{'station': 'Brest'}]
        """
        selected = ", ".join(map(_quoted, columns)) if columns else "*"
        text = f"SELECT {selected} FROM {_quoted(*self.name.split('.'))}{self._clause}"  # noqa: S608 - names are quoted
        if where is not None:
            text += f" WHERE (\n{where}\n)"
        if limit is not None:
            if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
                raise Invalid(f"limit is a number of rows, not {limit!r}")
            text += f" LIMIT {limit}"
        return self._lake.sql(text, fresh=not self._clause)

    def insert(self, rows: Any, *, idempotency_key: str | None = None) -> Receipt:
        """Adds rows, all or none: a list of dicts, Arrow data, a pandas or polars frame. One commit.

        The receipt has the commit's `snapshot_id` and the number of `rows`. The same idempotency key never commits
        twice.

        >>> receipt = lake.table("silver.scratch").insert([{"station": "Leith", "metres": 5.5}])
        >>> receipt["rows"]
        1
        """
        with self._writing():
            return self._lake.client.insert(self.name, sendable_rows(rows), idempotency_key=idempotency_key)

    def upsert(self, rows: Any, key: Sequence[str] | None = None, *, idempotency_key: str | None = None) -> Receipt:
        """Replaces the rows that have the same key and adds the others. `key`: the table's own if not given.

        >>> lake.table("silver.scratch").upsert([{"station": "Dover", "metres": 6.9}])["matched"]
        1
        """
        if isinstance(key, str):
            raise Invalid(f"key is a list of column names: write [{key!r}]")
        with self._writing():
            return self._lake.client.upsert(self.name, sendable_rows(rows), key, idempotency_key=idempotency_key)

    def delete(
        self,
        where: str | None = None,
        *,
        keys: Sequence[Mapping[str, Any]] | None = None,
        idempotency_key: str | None = None,
    ) -> Receipt:
        """Deletes the rows for which `where` is true, or those with the given keys.

        >>> lake.table("silver.scratch").delete("metres > 30")["rows"]
        0
        """
        if (where is None) == (keys is None):
            raise Invalid("pass either where= (a condition) or keys= (a list of dicts), and not both")
        with self._writing():
            return self._lake.client.delete(self.name, where, keys=keys, idempotency_key=idempotency_key)

    def changes(
        self,
        since: int | str | datetime | date | None = None,
        until: int | str | datetime | date | None = None,
        *,
        key: str | Iterable[str] | None = None,
        kept: bytes | None = None,
        verify: bool = True,
        demand: Literal["lake", "writer"] = "lake",
    ) -> Iterator[ChangeSet]:
        """The table's commits after `since` up to `until`, oldest first, each with its changes and their evidence.

        `since`, `until`: a timeline index, `sequence:<n>` (a commit's number in the table), `snapshot:<id>`, a time, or
        a name. A commit appears once it is in the timeline, a moment after it was written. Each is verified before it
        is returned: Unverified if a change or a commit is missing, altered or of another table. `key`: the log's
        verifier key; without it, the key that the lake itself states, which finds faults but no dishonest operator.
        `kept`: a checkpoint that you kept, which the log must extend. `demand`: as in `strandline.verify.feed`.
        Verifying needs numpy: `pip install 'strandline[verify]'`, or pass verify=False.

        >>> [len(changes) for changes in tides.changes(key=key)]
        [2]
        """
        self._check_writable("changes")
        first, last = (None if position is None else point(position) for position in (since, until))
        if not verify:
            return self._changes(first, last)
        return self._verified_changes(first, last, key, kept, demand)

    def _changes(
        self, since: str | int | None, until: str | int | None, extends: int | None = None
    ) -> Iterator[ChangeSet]:
        with translated(self._lake.endpoint):
            for data in self._lake.client.change_sets(self.name, since, until, extends=extends):
                yield ChangeSet(data)

    def _verified_changes(
        self,
        since: str | int | None,
        until: str | int | None,
        key: str | Iterable[str] | None,
        kept: bytes | None,
        demand: Literal["lake", "writer"],
    ) -> Iterator[ChangeSet]:
        from strandline.feed_reader import FeedReader

        with translated(self._lake.endpoint):
            keys = self._lake.client.verifier_keys() if key is None else key
        reader = FeedReader(keys, self.uuid, since, kept, demand, until)
        for changes in self._changes(since, until, reader.extends):
            reader.verify(changes)
            yield changes
        reader.finish()

    def history(self, since: PointLike | None = None) -> Rows:
        """The table's commits in the timeline, oldest first; those after `since`: a point in time, or `sequence:<n>`.

        >>> tides.history().to_arrow()["operation"].to_pylist()
        ['create', 'append']
        """
        self._check_writable("history")
        with translated(self._lake.endpoint):
            commits: list[Any] = list(self._lake.client.commits(self.name, since))
        rows = [
            {**commit, "committed": commit["committed_ms"], "sequenced": commit["sequenced_ms"]}
            | {name: None if commit.get(name) is None else int(commit[name]) for name in ("snapshot_id", "parent_id")}
            for commit in commits
        ]
        columns = {name: pa.array([row.get(name) for row in rows], type_) for name, type_ in _COMMIT_COLUMNS.items()}
        return Rows(pa.table(columns))

    def at(self, moment: int | str | datetime | date) -> Table:
        """The table at a point in time, read-only: a timeline index, a time, a named snapshot, or `snapshot:<id>`.

        >>> index = tides.history().rows()[-1]["index"]
        >>> len(tides.at(index).rows())
        2
        """
        at = point(moment)
        clause = f" VERSION AS OF {at}" if isinstance(at, int) else f" AS OF {_text(at)}"
        if isinstance(at, int) and at < 0:
            raise Invalid(f"there is no index {at} in a timeline: indexes begin at 0")
        table = copy.copy(self)
        table._clause = clause
        return table

    def _writing(self) -> Any:
        self._check_writable("a write")
        return translated(self._lake.endpoint)

    def _check_writable(self, what: str) -> None:
        if self._clause:
            raise Invalid(f"{self!r} has only rows() and schema(): use the table without at() for {what}")

    def __repr__(self) -> str:
        return f"<strandline.Table {self.name}{self._clause}>"


def _quoted(*parts: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
