"""A model of SlateDB on the simulated S3, behind the door that catalog/timeline/log/store.py uses.

Real SlateDB runs its own threads in Rust, which no seed orders. The model has what decides: the WAL, fencing by epoch,
manifests that are created once, SSTs that are read when they are needed, readers that poll, compaction and collection
of garbage. tests/simulation/test_slatedb_model.py runs the same steps on both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.simulation.slatedb_files import (
    Closed,
    CloseReason,
    Data,
    Database,
    Error,
    Manifest,
    Objects,
    Row,
    Rows,
    fenced,
    file_number,
)

MIN_COMPACTION = 4
"""Files of level 0 from which size-tiered compaction merges."""


class Handle:
    """The calls that writers and readers have in common."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.closed: Closed | None = None

    def _ready(self) -> None:
        if self.closed is not None:
            raise self.closed

    async def get(self, key: bytes) -> bytes | None:
        self._ready()
        return self.database.value(key)

    async def scan_with_options(self, key_range: Any, options: Any) -> Any:
        self._ready()
        rows = self.database.everything()
        keys = sorted(
            key for key, value in rows.items() if value is not None and key_range.start <= key < key_range.end
        )
        if options.order == "descending":
            keys.reverse()
        return Scan([Row(key, rows[key] or b"") for key in keys])

    async def shutdown(self) -> None:
        self.closed = self.closed or Closed("closed", CloseReason.CLEAN)

    async def shutdown_with_options(self, options: Any) -> None:
        await self.shutdown()


class Scan:
    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    async def next_batch(self, limit: int) -> list[Row]:
        batch, self._rows = self._rows[:limit], self._rows[limit:]
        return batch


class Writer(Handle):
    """The writer with the newest epoch. An older one learns that it is fenced when it writes an object."""

    def __init__(self, database: Database, objects: Objects, compacts: bool) -> None:
        super().__init__(database)
        self._objects = objects
        self._pending: Rows = {}
        self._open()
        if compacts:
            self._compact()

    def _open(self) -> None:
        database = self.database
        for _ in range(3):
            latest = database.latest()
            mine = Manifest(latest.id + 1, latest.writer_epoch + 1, latest.l0, latest.runs, latest.flushed_wal)
            if self._objects.create(f"manifest/{file_number(mine.id)}", mine):
                break
        else:
            raise Data("manifest file already exists")
        database.manifest, self._epoch = mine, mine.writer_epoch
        files = database.wal_after(mine.flushed_wal)
        self._next_wal = (files[-1] if files else mine.flushed_wal) + 1
        # An empty file of this epoch: an older writer that writes the same number finds it.
        while not self._objects.create(f"wal/{file_number(self._next_wal)}", (self._epoch, {})):
            self._next_wal += 1
        self._next_wal += 1
        for id_ in range(mine.flushed_wal + 1, self._next_wal):
            epoch, rows = self._objects.read(f"wal/{file_number(id_)}")
            if epoch > self._epoch:
                raise self._fence()
            database.memory |= rows

    def _fence(self) -> Closed:
        self.closed = fenced()
        return self.closed

    async def write(self, batch: Any) -> None:
        """In memory only: `flush` makes it durable."""
        self._ready()
        self._pending |= batch.rows
        self.database.memory |= batch.rows

    async def flush(self) -> None:
        self._ready()
        if not self._pending:
            return
        if not self._objects.create(f"wal/{file_number(self._next_wal)}", (self._epoch, self._pending)):
            raise self._fence()
        self._next_wal += 1
        self._pending = {}

    async def flush_with_options(self, options: Any) -> None:
        """The rows of the WAL as an SST of level 0. Without a file in the WAL since the last time: no request."""
        await self.flush()
        flushed, rows = self._next_wal - 1, dict(self.database.memory)
        if flushed == self.database.manifest.flushed_wal:
            return
        ssts = (self.database.unique(),) if rows else ()
        for name in ssts:
            self._objects.create(f"compacted/{name}", rows)
        self._update(lambda m: Manifest(m.id + 1, m.writer_epoch, (*ssts, *m.l0), m.runs, flushed))
        self.database.memory.clear()

    def _compact(self) -> None:
        manifest = self.database.manifest
        if len(manifest.l0) < MIN_COMPACTION:
            return
        name, rows = self.database.unique(), Rows()
        for sst in reversed((*manifest.l0, *manifest.runs)):
            rows |= self.database.sst(sst)
        self._objects.create(f"compacted/{name}", {key: value for key, value in rows.items() if value is not None})
        merged = set(manifest.l0)
        self._update(
            lambda m: Manifest(
                m.id + 1, m.writer_epoch, tuple(sst for sst in m.l0 if sst not in merged), (name,), m.flushed_wal
            )
        )

    def _update(self, change: Callable[[Manifest], Manifest]) -> None:
        while True:
            latest = self.database.latest()
            if latest.writer_epoch > self._epoch:
                raise self._fence()
            changed = change(latest)
            if self._objects.create(f"manifest/{file_number(changed.id)}", changed):
                self.database.manifest = changed
                return


class DbReader(Handle):
    """Follows the database. It polls in the background; after a thaw a read may come before the poll."""

    def __init__(
        self, database: Database, objects: Objects, poll_s: float, now: Callable[[], float], lags: Any
    ) -> None:
        super().__init__(database)
        self._objects, self._poll_s, self._now, self._lags = objects, poll_s, now, lags
        self._wal = 0
        database.forgets = lags
        self._poll()

    def _ready(self) -> None:
        super()._ready()
        if self._now() - self._polled >= self._poll_s and not self._lags():
            try:
                self._poll()
            except Error:
                return  # it keeps what it has

    def _poll(self) -> None:
        self._polled = self._now()
        manifest = self.database.latest()
        memory = dict(self.database.memory) if manifest.id == self.database.manifest.id else Rows()
        read = self._wal if memory else manifest.flushed_wal
        for id_ in self.database.wal_after(max(read, manifest.flushed_wal)):
            try:
                memory |= self._objects.read(f"wal/{file_number(id_)}")[1]
            except Data:
                continue  # flushed and collected since: the next poll has its rows in an SST
            read = id_
        self.database.manifest, self.database.memory, self._wal = manifest, memory, read


class Admin:
    def __init__(self, objects: Objects, unique: Callable[[], str], now: Callable[[], float]) -> None:
        self._objects, self._database, self._now = objects, Database(objects, unique), now

    async def read_manifest(self, id_: int | None) -> Any:
        return self._database.latest()

    async def run_gc_once(self, options: Any) -> None:
        manifest, age_s = self._database.latest(), options.wal_options.min_age_ms / 1000
        used = {*manifest.l0, *manifest.runs}
        garbage = {
            "wal": lambda name: int(name) <= manifest.flushed_wal,
            "compacted": lambda name: name not in used,
            "manifest": lambda name: int(name) < manifest.id,
        }
        for folder, is_garbage in garbage.items():
            for name, written in self._objects.listed(folder).items():
                if is_garbage(name) and self._now() - written.timestamp() >= age_s:
                    self._objects.delete(f"{folder}/{name}")


class WriteBatch:
    def __init__(self) -> None:
        self.rows: Rows = {}

    def put(self, key: bytes, value: bytes) -> None:
        self.rows[key] = value

    def delete(self, key: bytes) -> None:
        self.rows[key] = None


class Settings:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {"compactor_options": {}}

    @classmethod
    def default(cls) -> Settings:
        return cls()

    def set(self, key: str, value: str) -> None:
        self.values[key] = json.loads(value)

    def to_json_string(self) -> str:
        return json.dumps(self.values)


def _fields(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


def bindings(
    client: Callable[[], Any],
    bucket: str,
    unique: Callable[[], str],
    now: Callable[[], float],
    lags: Callable[[], bool] = lambda: False,
) -> Any:
    """A stand-in for `slatedb.uniffi`. `lags`: whether a reader's poll is late at this read."""

    class DbBuilder:
        def __init__(self, path: str, store: Any) -> None:
            self._objects, self._settings = Objects(client, bucket, path), Settings()

        def with_settings(self, settings: Settings) -> None:
            self._settings = settings

        async def build(self) -> Writer:
            compacts = self._settings.values.get("compactor_options") is not None
            return Writer(Database(self._objects, unique), self._objects, compacts)

    class DbReaderBuilder:
        def __init__(self, path: str, store: Any) -> None:
            self._objects, self._poll_s = Objects(client, bucket, path), 1.0

        def with_reader_mode(self, mode: Any) -> None:
            return None

        def with_options(self, options: Any) -> None:
            self._poll_s = options.manifest_poll_interval_ms / 1000

        async def build(self) -> DbReader:
            return DbReader(Database(self._objects, unique), self._objects, self._poll_s, now, lags)

    class AdminBuilder:
        def __init__(self, path: str, store: Any) -> None:
            self._objects = Objects(client, bucket, path)

        def build(self) -> Admin:
            return Admin(self._objects, unique, now)

    return SimpleNamespace(
        Error=Error,
        CloseReason=CloseReason,
        DbBuilder=DbBuilder,
        DbReaderBuilder=DbReaderBuilder,
        AdminBuilder=AdminBuilder,
        WriteBatch=WriteBatch,
        Settings=Settings,
        ReaderMode=SimpleNamespace(FOLLOW_LATEST=lambda: "follow"),
        ReaderOptions=_fields,
        KeyRange=_fields,
        ScanOptions=_fields,
        FlushOptions=_fields,
        CloseOptions=_fields,
        GarbageCollectorDirectoryOptions=_fields,
        GarbageCollectorOptions=_fields,
        FlushType=SimpleNamespace(MEM_TABLE="memtable", WAL="wal"),
        DurabilityLevel=SimpleNamespace(MEMORY="memory"),
        IterationOrder=SimpleNamespace(ASCENDING="ascending", DESCENDING="descending"),
    )
