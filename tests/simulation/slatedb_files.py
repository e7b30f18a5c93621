"""The files of the model of SlateDB: manifests, write-ahead log and SSTs as objects, and SlateDB's errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

Rows = dict[bytes, bytes | None]
"""None: the key is deleted."""


class CloseReason(Enum):
    FENCED = auto()
    CLEAN = auto()


class Error(Exception):
    """SlateDB's error, with a class for each kind, as its bindings have them."""

    Closed: type[Closed]
    Unavailable: type[Unavailable]
    Data: type[Data]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Closed(Error):
    def __init__(self, message: str, reason: CloseReason) -> None:
        super().__init__(message)
        self.reason = reason


class Unavailable(Error):
    pass


class Data(Error):
    pass


Error.Closed, Error.Unavailable, Error.Data = Closed, Unavailable, Data


def fenced() -> Closed:
    return Closed("detected newer DB client", CloseReason.FENCED)


class Row(NamedTuple):
    key: bytes
    value: bytes


class Objects:
    """The database's objects, by name. `client`: an S3 client of the current process."""

    def __init__(self, client: Callable[[], Any], bucket: str, path: str) -> None:
        self._client, self._bucket, self._path = client, bucket, path

    def create(self, name: str, value: Any) -> bool:
        """Whether the object was created: False if there is one already."""
        try:
            self._client().put_object(
                Bucket=self._bucket, Key=f"{self._path}/{name}", Body=pickle.dumps(value), IfNoneMatch="*"
            )
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 412:
                return False
            raise Unavailable(str(error)) from None
        except Exception as error:
            raise Unavailable(str(error)) from None
        return True

    def read(self, name: str) -> Any:
        try:
            return pickle.loads(
                self._client().get_object(Bucket=self._bucket, Key=f"{self._path}/{name}")["Body"].read()
            )
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                raise Data(f"object {name} not found") from None
            raise Unavailable(str(error)) from None
        except Exception as error:
            raise Unavailable(str(error)) from None

    def listed(self, folder: str) -> dict[str, Any]:
        """Name in the folder -> when it was written."""
        prefix = f"{self._path}/{folder}/"
        try:
            page = self._client().list_objects_v2(Bucket=self._bucket, Prefix=prefix)
        except Exception as error:
            raise Unavailable(str(error)) from None
        return {item["Key"].removeprefix(prefix): item["LastModified"] for item in page.get("Contents", ())}

    def delete(self, name: str) -> None:
        try:
            self._client().delete_object(Bucket=self._bucket, Key=f"{self._path}/{name}")
        except Exception as error:
            raise Unavailable(str(error)) from None


@dataclass(frozen=True)
class Manifest:
    """The state that a manifest file has. `l0` and `runs`: SSTs, the newest first."""

    id: int = 0
    writer_epoch: int = 0
    l0: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    flushed_wal: int = 0
    """The last WAL file whose rows are in SSTs."""


def file_number(id_: int) -> str:
    return f"{id_:020}"


class Database:
    """What a writer and a reader share: the manifest, the WAL's rows, and reads through the SSTs."""

    def __init__(self, objects: Objects, unique: Callable[[], str]) -> None:
        self._objects, self.unique = objects, unique
        self.manifest = Manifest()
        self.memory: Rows = {}
        self.forgets: Callable[[], bool] = lambda: False
        """Whether the block cache has lost what is asked for now: it is bounded, and a reader may have slept."""
        self._ssts: dict[str, Rows] = {}

    def latest(self) -> Manifest:
        for _ in range(3):
            names = self._objects.listed("manifest")
            if not names:
                return Manifest()
            try:
                found: Manifest = self._objects.read(f"manifest/{max(names)}")
                return found
            except Data:
                continue  # collected between the two requests
        raise Data("the manifest is gone")

    def wal_after(self, last: int) -> list[int]:
        return sorted(id_ for id_ in (int(name) for name in self._objects.listed("wal")) if id_ > last)

    def value(self, key: bytes) -> bytes | None:
        if key in self.memory:
            return self.memory[key]
        for name in (*self.manifest.l0, *self.manifest.runs):
            rows = self.sst(name)
            if key in rows:
                return rows[key]
        return None

    def sst(self, name: str) -> Rows:
        if name not in self._ssts or self.forgets():
            self._ssts[name] = self._objects.read(f"compacted/{name}")
        return self._ssts[name]

    def everything(self) -> Rows:
        rows: Rows = {}
        for name in reversed((*self.manifest.l0, *self.manifest.runs)):
            rows |= self.sst(name)
        return rows | self.memory
