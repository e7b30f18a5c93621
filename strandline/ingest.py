"""Files into the lake: uploads them to landing, then polls until each is committed, a duplicate, or rejected."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from strandline.client import Client
from strandline.errors import Invalid
from strandline.problems import Problem

Status = Literal["landing", "committed", "duplicate", "empty", "quarantined", "failed", "refused"]
_FINAL = ("committed", "duplicate", "empty", "quarantined", "refused")
_PAUSES_S = (0.2, 2.0)


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """What became of one file.

    `committed`: its `rows` are in the table since `snapshot_id`. `duplicate`: the same bytes were ingested before.
    `empty`: it has no rows.
    `quarantined` and `refused`: `reason` and `position` say what is wrong with it. `landing`: it is not processed yet.
    `failed`: the lake failed to process it, and will retry.

    >>> with open("gauges.csv", "w") as file:
    ...     _ = file.write("station,metres\\nDover,3.5\\n")
    >>> (gauges,) = lake.ingest("gauges.csv", "bronze.gauges")
    >>> gauges.status, gauges.rows
    ('committed', 1)
    """

    name: str
    table: str
    status: Status
    sha256: str = ""
    rows: int | None = None
    snapshot_id: int | None = None
    index: int | None = None
    duplicate_of: str | None = None
    reason: str | None = None
    position: dict[str, Any] | None = None


class Ingestion:
    """One call of `lake.ingest`. Calls `progress` with each file when it is sent and when its status is final."""

    def __init__(self, client: Client, table: str, progress: Callable[[IngestedFile], None] | None) -> None:
        self._client, self._table = client, table
        self._progress = progress or (lambda file: None)

    def run(self, path: Path, timeout_s: float) -> list[IngestedFile]:
        files = {name: self._send(name, file) for name, file in _files(path)}
        deadline, pause = time.monotonic() + timeout_s, _PAUSES_S[0]
        while True:
            for name, file in files.items():
                if file.status not in _FINAL:
                    files[name] = self._refresh(file)
            if all(file.status in _FINAL for file in files.values()) or time.monotonic() >= deadline:
                return list(files.values())
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, _PAUSES_S[1])

    def _send(self, name: str, path: Path) -> IngestedFile:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise Invalid(f"{path} cannot be read: {error}") from None
        try:
            sent = IngestedFile(name, self._table, "landing", self._client.upload(self._table, name, data))
        except Problem as problem:
            if problem.kind != "invalid":  # the lake or the caller is at fault, not this file
                raise
            sent = IngestedFile(name, self._table, "refused", reason=problem.detail)
        self._progress(sent)
        return sent

    def _refresh(self, file: IngestedFile) -> IngestedFile:
        """The file's status now. Looked up by its digest; its name decides between files with the same bytes."""
        suffix = f"/{self._table.replace('.', '/')}/{file.name}"
        for entry in self._client.where_is(file.sha256).get("files", ()):
            if entry["key"].endswith(suffix) and entry["status"] != "landing":
                snapshot = entry.get("snapshot_id")
                fields: Any = {
                    name: entry.get(name) for name in ("rows", "index", "duplicate_of", "reason", "position")
                }
                current = replace(
                    file, status=entry["status"], snapshot_id=None if snapshot is None else int(snapshot), **fields
                )
                if current.status in _FINAL:
                    self._progress(current)
                return current
        return file


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of each file; the name is the path relative to the folder. Hidden files and folders are skipped."""
    if path.is_file():
        yield path.name, path
        return
    if not path.is_dir():
        raise Invalid(f"there is no file or folder {path}")
    count = 0
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if file.is_file() and not any(part.startswith(".") for part in name.parts):
            count += 1
            yield name.as_posix(), file
    if not count:
        raise Invalid(f"{path} contains no file to ingest: hidden files are skipped")
