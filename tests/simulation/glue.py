"""Glue in memory: databases and tables, whose VersionId decides between two writers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from tests.simulation.network import Network
from tests.simulation.s3 import Paginator


class EntityNotFoundException(ClientError):
    pass


class AlreadyExistsException(ClientError):
    pass


class ConcurrentModificationException(ClientError):
    pass


def _refuse(kind: type[ClientError], operation: str) -> ClientError:
    error = {"Error": {"Code": kind.__name__, "Message": "simulated"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return kind(error, operation)  # type: ignore[arg-type]


class Glue:
    """The catalog's state. `on_commit` sees every change of a table, in the order in which they happened."""

    def __init__(self) -> None:
        self.databases: dict[str, dict[str, Any]] = {}
        self.tables: dict[tuple[str, str], dict[str, Any]] = {}
        self.on_commit: Callable[[str, dict[str, Any]], None] = lambda name, entry: None

    def create(self, database: str, entry: dict[str, Any]) -> None:
        if database not in self.databases:
            raise _refuse(EntityNotFoundException, "CreateTable")
        if (database, entry["Name"]) in self.tables:
            raise _refuse(AlreadyExistsException, "CreateTable")
        self._store(database, entry, 0)

    def update(self, database: str, entry: dict[str, Any], version: str | None) -> None:
        current = self.get(database, entry["Name"])
        if not self.is_current(current, version):
            raise _refuse(ConcurrentModificationException, "UpdateTable")
        self._store(database, entry, int(current["VersionId"]) + 1)

    def is_current(self, entry: dict[str, Any], version: str | None) -> bool:
        return version is None or entry["VersionId"] == version

    def get(self, database: str, table: str) -> dict[str, Any]:
        if (database, table) not in self.tables:
            raise _refuse(EntityNotFoundException, "GetTable")
        return copy.deepcopy(self.tables[database, table])

    def delete(self, database: str, table: str) -> None:
        self.get(database, table)
        del self.tables[database, table]

    def _store(self, database: str, entry: dict[str, Any], version: int) -> None:
        stored = copy.deepcopy(entry) | {"DatabaseName": database, "VersionId": str(version)}
        self.tables[database, entry["Name"]] = stored
        self.on_commit(f"{database}.{entry['Name']}", stored)


class GlueClient:
    """boto3's Glue client, as far as pyiceberg and the lake use it."""

    def __init__(self, network: Network, glue: Glue) -> None:
        self._network, self._glue = network, glue
        self.meta = SimpleNamespace(
            config=SimpleNamespace(retries={}), events=SimpleNamespace(register=lambda *a, **k: None)
        )
        self.exceptions = SimpleNamespace(
            EntityNotFoundException=EntityNotFoundException,
            AlreadyExistsException=AlreadyExistsException,
            ConcurrentModificationException=ConcurrentModificationException,
        )

    def _send(self, what: str, apply: Callable[[], Any]) -> Any:
        return self._network.request(f"glue {what}", apply)

    def create_database(self, *, DatabaseInput: dict[str, Any], **_: Any) -> None:
        def apply() -> None:
            if DatabaseInput["Name"] in self._glue.databases:
                raise _refuse(AlreadyExistsException, "CreateDatabase")
            self._glue.databases[DatabaseInput["Name"]] = DatabaseInput

        self._send(f"CreateDatabase {DatabaseInput['Name']}", apply)

    def get_database(self, *, Name: str, **_: Any) -> dict[str, Any]:
        def apply() -> dict[str, Any]:
            if Name not in self._glue.databases:
                raise _refuse(EntityNotFoundException, "GetDatabase")
            return {"Database": dict(self._glue.databases[Name])}

        result: dict[str, Any] = self._send(f"GetDatabase {Name}", apply)
        return result

    def get_databases(self, **_: Any) -> dict[str, Any]:
        result: dict[str, Any] = self._send(
            "GetDatabases", lambda: {"DatabaseList": [dict(found) for found in self._glue.databases.values()]}
        )
        return result

    def create_table(self, *, DatabaseName: str, TableInput: dict[str, Any], **_: Any) -> None:
        name = f"{DatabaseName}.{TableInput['Name']}"
        self._send(f"CreateTable {name}", lambda: self._glue.create(DatabaseName, TableInput))

    def get_table(self, *, DatabaseName: str, Name: str, **_: Any) -> dict[str, Any]:
        result: dict[str, Any] = self._send(
            f"GetTable {DatabaseName}.{Name}", lambda: {"Table": self._glue.get(DatabaseName, Name)}
        )
        return result

    def get_tables(self, *, DatabaseName: str, **_: Any) -> dict[str, Any]:
        def apply() -> dict[str, Any]:
            return {"TableList": [self._glue.get(*key) for key in sorted(self._glue.tables) if key[0] == DatabaseName]}

        result: dict[str, Any] = self._send(f"GetTables {DatabaseName}", apply)
        return result

    def update_table(
        self, *, DatabaseName: str, TableInput: dict[str, Any], VersionId: str | None = None, **_: Any
    ) -> None:
        what = f"UpdateTable {DatabaseName}.{TableInput['Name']} at {VersionId}"
        self._send(what, lambda: self._glue.update(DatabaseName, TableInput, VersionId))

    def delete_table(self, *, DatabaseName: str, Name: str, **_: Any) -> None:
        self._send(f"DeleteTable {DatabaseName}.{Name}", lambda: self._glue.delete(DatabaseName, Name))

    def get_paginator(self, operation: str) -> Paginator:
        return Paginator(getattr(self, operation))
