"""The records that decide transactions, and the resolution of transactions whose writers crashed."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from catalog.core.aws_errors import translate_aws_error, translate_aws_errors
from catalog.iceberg import TRANSACTION_PREFIX, ObjectStore
from catalog.tables.committer import Committer, transaction_branches
from catalog.tables.glue_store import GlueTableStore
from catalog.tables.transaction_resolution import abort_branch, commit_branch

FORMAT = "strandline/transaction@v1"
COMMITTED, ABORTED = "committed", "aborted"
# How long other writers wait for an undecided transaction before they abort it.
PATIENCE_S = 10.0
_POLL_S = 0.05


class TransactionRecord:
    """The object that decides a transaction. Created once, never changed."""

    def __init__(self, store: ObjectStore, folder: str, transaction: str) -> None:
        self._store, self.path = store, f"{folder.rstrip('/')}/{transaction}.json"
        self._id = transaction

    def read(self) -> str | None:
        """COMMITTED, ABORTED, or None while it is undecided. One request."""
        try:
            with translate_aws_errors(self.path):
                state: str = json.loads(self._store.get(self.path))["state"]
        except FileNotFoundError:
            return None
        return state

    def decide(self, state: str, participants: Sequence[Sequence[str]] = ()) -> str:
        """Writes the record unless there is one, and returns the state it has. After an error it reads the record:
        the response to a successful write may have been lost."""
        content = {"format": FORMAT, "id": self._id, "state": state, "participants": participants}
        body = json.dumps(content, indent=1).encode()
        try:
            self._store.put(self.path, body, IfNoneMatch="*")
            return state
        except (ClientError, BotoCoreError) as error:
            decided = self.read()
            if decided is None:
                raise translate_aws_error(error, self.path) from error
            return decided


class Transactions:
    """All records of a lake."""

    def __init__(self, store: ObjectStore, records: str, patience_s: float = PATIENCE_S) -> None:
        self._store, self._records, self._patience_s = store, records, patience_s

    def record(self, transaction: str) -> TransactionRecord:
        return TransactionRecord(self._store, self._records, transaction)

    def resolve(self, committer: Committer, name: str, branches: Sequence[str]) -> None:
        """Waits for each transaction's decision, aborts it after `patience_s`, and applies that to the table."""
        for branch in branches:
            self._resolve(committer, name, branch)

    def recover(self, committer: Committer, names: Sequence[str]) -> list[str]:
        """Resolves what crashed writers left on the tables; returns the branches as `<table>@<branch>`."""
        resolved = []
        for name in names:
            branches = transaction_branches(committer.table_store.load(name))
            self.resolve(committer, name, branches)
            resolved += [f"{name}@{branch}" for branch in branches]
        return resolved

    def forget(self, table_store: GlueTableStore, older_than_ms: int, held: Sequence[str]) -> int:
        """Deletes the records written before a time; returns how many. `held`: tables that may have a branch.

        A record stays while a branch of its transaction exists. The others were resolved on every table, and the
        writer of one so old is gone, so nobody reads them again. One LIST per thousand records.
        """
        unresolved = {branch for name in held for branch in transaction_branches(table_store.load(name))}
        store, url = self._store, urlsplit(self._records)
        bucket, folder = url.netloc, f"{url.path.strip('/')}/"
        old = list[str]()
        with translate_aws_errors(self._records):
            for page in store.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=folder):
                for item in page.get("Contents", ()):
                    transaction = item["Key"].removeprefix(folder).removesuffix(".json")
                    is_old = item["LastModified"].timestamp() * 1000 < older_than_ms
                    if is_old and TRANSACTION_PREFIX + transaction not in unresolved:
                        old.append(f"s3://{bucket}/{item['Key']}")
            store.delete(old)
        return len(old)

    def _resolve(self, committer: Committer, name: str, branch: str) -> None:
        record = self.record(branch.removeprefix(TRANSACTION_PREFIX))
        # Patience ends by the writer's clock or, if that is ahead of ours, by the time this call has waited.
        until = time.monotonic() + self._patience_s
        while True:
            head = committer.table_store.load(name).metadata.snapshot_by_name(branch)
            if head is None:
                return  # another process resolved it
            state = record.read()
            old = time.time() * 1000 - head.timestamp_ms > self._patience_s * 1000
            if state is None and (old or time.monotonic() >= until):
                state = record.decide(ABORTED)
            if state == COMMITTED:
                commit_branch(committer, name, branch)
                return
            if state == ABORTED:
                abort_branch(committer, name, branch)
                return
            time.sleep(_POLL_S)
