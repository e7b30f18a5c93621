"""What clients ask of the lake: operations drawn from the seed, each with its effect on the reference model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from tests.simulation.scheduler import World

KEYED, FILES = ("sim.a", "sim.b"), "sim.files"
TABLES = (*KEYED, FILES)
KEYS = 6
CLIENTS = 3
WEIGHTS = {
    "insert": 5,
    "upsert": 5,
    "delete": 2,
    "transaction": 3,
    "land": 4,
    "alter": 1,
    "expire": 2,
    "compact": 2,
    "compact timeline": 2,
    "name": 1,
    "read": 4,
    "cut": 4,
    "prove": 2,
    "feed": 2,
    "repeat": 3,
    "pause": 2,
}
REPEATABLE = ("insert", "upsert", "delete", "transaction", "alter")
Rows = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Op:
    """One operation of a client. `rows`: table -> what it writes or, for a delete, the ids that it deletes."""

    id: int
    client: int
    kind: str
    table: str = ""
    rows: dict[str, tuple[int, ...]] = field(default_factory=dict)
    of: int = -1
    """The operation that a repeat repeats."""
    seconds: float = 0.0

    def __str__(self) -> str:
        what = ", ".join(f"{table} {list(ids)}" for table, ids in self.rows.items()) or self.table
        return f"op {self.id} of client {self.client}: {self.kind} {what}{f' {self.of}' if self.of >= 0 else ''}"

    @property
    def token(self) -> str:
        return f"op-{self.id}"

    @property
    def key(self) -> str:
        """The landed object's key."""
        return f"landing/sim/files/{self.id}.jsonl"

    @property
    def column(self) -> str:
        return f"c{self.id}"

    def values(self, table: str) -> list[dict[str, Any]]:
        return [{"id": id_, "v": f"op-{self.id}"} for id_ in self.rows[table]]

    def body(self) -> bytes:
        return b"".join(json.dumps(row).encode() + b"\n" for row in self.values(FILES))

    def landed_token(self, version_id: str) -> str:
        """The commit token of the landed object's version."""
        return sha256(f"{self.key}\n{version_id}".encode()).hexdigest()

    def apply(self, table: str, rows: Rows) -> Rows:
        """The table's rows after this operation."""
        ids = self.rows.get(table, ())
        kept: Iterable[tuple[int, str]] = rows
        if self.kind in ("upsert", "transaction", "delete"):
            kept = [row for row in rows if row[0] not in ids]
        added = [] if self.kind == "delete" else [(id_, f"op-{self.id}") for id_ in ids]
        return tuple(sorted([*kept, *added]))


def draw(world: World, count: int) -> list[Op]:
    """The operations of a run, in the order in which each client makes them."""
    random, ops = world.random("workload"), list[Op]()
    # Each seed leaves out some kinds: the others then meet each other more often.
    kinds = [kind for kind in WEIGHTS if random.random() < 0.7] or list(WEIGHTS)
    weights = [WEIGHTS[kind] for kind in kinds]
    for id_ in range(count):
        client, kind = random.randrange(CLIENTS), random.choices(kinds, weights)[0]
        table = random.choice(KEYED)
        writes = [op for op in ops if op.kind in REPEATABLE and op.client == client]
        new_ids = tuple(range(1000 + 10 * id_, 1000 + 10 * id_ + random.randint(1, 3)))
        keys = tuple(sorted(random.sample(range(KEYS), random.randint(1, 3))))
        match kind:
            case "insert":
                op = Op(id_, client, kind, rows={table: new_ids})
            case "upsert" | "delete":
                op = Op(id_, client, kind, rows={table: keys})
            case "transaction":
                op = Op(id_, client, kind, rows=dict.fromkeys(KEYED, keys))
            case "land":
                op = Op(id_, client, kind, rows={FILES: new_ids})
            case "repeat" if writes:
                op = Op(id_, client, kind, of=random.choice(writes).id)
            case "pause" | "repeat":
                op = Op(id_, client, "pause", seconds=random.choice((1.0, 10.0, 40.0, 320.0)))
            case _:
                op = Op(id_, client, kind, table=random.choice(TABLES) if kind == "read" else table)
        ops.append(op)
    return ops
