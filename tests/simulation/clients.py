"""Clients: each makes its operations one after the other, repeats what failed, and keeps what it was told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from catalog.core.errors import Conflict, Invalid, LakeError, NotFound, Unavailable
from catalog.core.events import Compact
from catalog.lake import Lake
from tests.simulation.cloud import BUCKET, Cloud, Died
from tests.simulation.history import History, Rows, Violation
from tests.simulation.scheduler import EPOCH_S, Process
from tests.simulation.workload import KEYED, TABLES, Op

TRIES = 8
API_SLOTS = 2
Cut = tuple[int, dict[str, int | None]]


@dataclass
class Told:
    """What clients were told, for the oracles."""

    acknowledged: dict[int, Any] = field(default_factory=dict)
    """Operation -> the first answer."""
    repeated: list[tuple[int, Any]] = field(default_factory=list)
    refused: dict[int, LakeError] = field(default_factory=dict)
    reads: list[tuple[Op, float, float, Rows]] = field(default_factory=list)
    cuts: list[tuple[str, Cut]] = field(default_factory=list)
    """(process, what it saw), in order."""
    transaction_reads: dict[int, dict[str, Rows]] = field(default_factory=dict)
    """Transaction -> what it read, for those whose commit was acknowledged as theirs."""
    landed: dict[int, str] = field(default_factory=dict)
    """Operation -> the version id of the object that it put."""


class Client:
    """A person's program. It lives outside of the lake: nothing kills it."""

    def __init__(self, cloud: Cloud, history: History, told: Told, number: int, ops: list[Op]) -> None:
        self._cloud, self._history, self._told, self._number, self._ops = cloud, history, told, number, ops
        self.process = Process(cloud.world, f"client.{number}")
        self._by_id = {op.id: op for op in ops}

    def run(self) -> None:
        random = self._cloud.world.random("client", self._number)
        pause = self._cloud.world.random("pace").choice((0.3, 1.0, 4.0))
        for op in self._ops:
            self._cloud.world.sleep(random.uniform(0, pause))
            self._cloud.world.note(self.process, str(op))
            self._make(op)

    def _make(self, op: Op) -> None:
        if op.kind == "pause":
            self._cloud.world.sleep(op.seconds)
        elif op.kind == "repeat":
            first = self._by_id.get(op.of)
            if first is not None and first.id in self._told.acknowledged:
                answer = self._ask(first, self._work(first))
                if answer is not None:
                    self._told.repeated.append((first.id, answer))
        elif op.kind in ("read", "cut", "prove", "feed"):
            self._read(op)
        else:
            answer = self._ask(op, self._work(op))
            if answer is not None:
                self._told.acknowledged.setdefault(op.id, answer)

    def _ask(self, op: Op, work: Callable[[Lake], Any], tries: int = TRIES) -> Any:
        """Repeats the operation until it is answered; None if it never is, or is refused."""
        for attempt in range(tries):
            if attempt:
                self._cloud.world.sleep(min(20.0, 0.5 * 2**attempt))
            try:
                return self._invoke(op, work)
            except (Died, Unavailable, Conflict):
                continue
            except (Invalid, NotFound) as error:
                self._told.refused[op.id] = error
                return None
            except Exception as error:
                if op.kind == "land" and isinstance(error, BotoCoreError | ClientError):
                    continue  # a file is put without the lake
                raise Violation(f"{op} failed with {error!r}") from error
        return None

    def _invoke(self, op: Op, work: Callable[[Lake], Any]) -> Any:
        def run() -> Any:
            self._cloud.world.task().op = op.id
            return work(self._cloud.lake())

        return self._cloud.invoke(f"api.{self._number % API_SLOTS}", run)

    def _work(self, op: Op) -> Callable[[Lake], Any]:
        table = next(iter(op.rows), op.table)
        match op.kind:
            case "insert":
                return lambda lake: lake.tables.insert(table, op.values(table), token=op.token)
            case "upsert":
                return lambda lake: lake.tables.upsert(table, op.values(table), token=op.token)
            case "delete":
                keys = [{"id": id_} for id_ in op.rows.get(table, ())]
                return lambda lake: lake.tables.delete(table, keys=keys, token=op.token)
            case "alter":
                return lambda lake: lake.tables.alter(table, add={op.column: "string"}, token=op.token) or True
            case "expire":
                return lambda lake: lake.tables.expire(table, older_than=self._now_ms())
            case "compact":
                return lambda lake: lake.tables.compact(table)
            case "compact timeline":
                return lambda lake: lake.request(Compact()) or True
            case "name":
                return lambda lake: (lake.name_index(f"n{op.id}"),)
            case "transaction":
                return lambda lake: self._transact(lake, op)
            case "land":
                return lambda lake: self._land(lake, op)
        raise AssertionError(op.kind)

    def _land(self, lake: Lake, op: Op) -> str:
        """Puts the file. Each PUT that reaches S3 is a version of its own, and each version's rows are ingested."""
        response = lake.s3.put_object(Bucket=BUCKET, Key=op.key, Body=op.body())
        return str(response["VersionId"])

    def _transact(self, lake: Lake, op: Op) -> tuple[Any, ...]:
        """Reads none of the tables, one or both, then writes to both. A repeat keeps what the first one read."""
        read: dict[str, Rows] = {}
        with lake.transaction(op.token) as transaction:
            for table in list(op.rows)[: op.id % 3]:
                rows = transaction.read(table, columns=("id", "v")).to_pylist()
                read[table] = tuple(sorted((row["id"], row["v"]) for row in rows))
            for table in op.rows:
                transaction.upsert(table, op.values(table))
        if not transaction.receipts[0].replayed:
            self._told.transaction_reads[op.id] = read
        return tuple(receipt.snapshot_id for receipt in transaction.receipts)

    def _read(self, op: Op) -> None:
        world = self._cloud.world

        def read(lake: Lake) -> tuple[float, Rows]:
            began = world.now
            rows = lake.tables.scan(op.table, columns=("id", "v")).to_pylist()
            return began, tuple(sorted((row["id"], row["v"]) for row in rows))

        def cut(lake: Lake) -> tuple[str, Cut]:
            found = lake.timeline.cut(TABLES)
            return world.task().process.name, (found.index, dict(found.snapshots))

        def prove(lake: Lake) -> int:
            size = lake.timeline.head().checkpoint.size
            for index in range(size):
                lake.timeline.proof(index)
            return size

        def feed(lake: Lake) -> int:
            return sum(1 for _ in lake.changes(op.table))

        work: dict[str, Callable[[Lake], Any]] = {"read": read, "cut": cut, "prove": prove, "feed": feed}
        answer = self._ask(op, work[op.kind], tries=3)
        if answer is None:
            return
        if op.kind == "read":
            self._told.reads.append((op, answer[0], world.now, answer[1]))
        elif op.kind == "cut":
            self._told.cuts.append(answer)

    def _now_ms(self) -> int:
        return int((EPOCH_S + self._cloud.world.now) * 1000)


def set_up(cloud: Cloud) -> None:
    """The database and the tables, before anything fails."""
    lake = cloud.lake()
    lake.iceberg.create_namespace("sim")
    columns = {"id": "long", "v": "string"}
    for table in TABLES:
        mode, key = ("mor" if table == KEYED[1] else "cow"), (("id",) if table in KEYED else ())
        lake.tables.create(table, columns, mode=mode, key=key)
