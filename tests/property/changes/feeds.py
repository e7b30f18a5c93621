"""Change sets between two states of a table, of Hypothesis' making and at random."""

from __future__ import annotations

import random
from decimal import Decimal
from hashlib import sha256
from types import SimpleNamespace

import pyarrow as pa
from hypothesis import strategies as st

from catalog.changes import (
    ChangeSet,
    CommitHeader,
)
from catalog.changes.digest import row_digests
from catalog.changes.pairing import pair, survivors


def named(name: str, kind, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


SCHEMA = pa.schema(
    [
        named("region", pa.string(), 1),
        named("id", pa.int64(), 2),
        named("amount", pa.decimal128(9, 2), 3),
        named("at", pa.timestamp("us", "UTC"), 4),
        named("tags", pa.list_(named("element", pa.string(), 6)), 5),
        named("ratio", pa.float64(), 7),
    ]
)
KEY = ("region", "id")
SCHEMA_JSON = (
    b'{"fields":[{"id":1,"name":"region","type":"string"},{"id":2,"name":"id","type":"long"},'
    b'{"id":3,"name":"amount","type":"decimal(9, 2)"},{"id":4,"name":"at","type":"timestamptz"},'
    b'{"id":5,"name":"tags","type":{"element":"string","element-id":6,"type":"list"}},'
    b'{"id":7,"name":"ratio","type":"double"}],"identifier-field-ids":[1,2],"schema-id":0,"type":"struct"}'
)

keys = st.tuples(st.sampled_from(["", "DE", "FR", "ü"]), st.integers(-3, 12))
values = st.fixed_dictionaries(
    {
        "amount": st.none() | st.integers(-99, 99).map(lambda cents: Decimal(cents).scaleb(-2)),
        "at": st.none() | st.integers(-(2**62), 2**62),
        "tags": st.none() | st.lists(st.none() | st.text(max_size=2), max_size=2),
        "ratio": st.none() | st.floats(),
    }
)
states = st.dictionaries(keys, values, max_size=12)


def rows_of(state) -> pa.Table:
    records = [{"region": region, "id": number, **rest} for (region, number), rest in state.items()]
    return pa.Table.from_pylist(records, schema=SCHEMA)


def fingerprint(rest) -> str:
    return repr(sorted(rest.items()))  # NaN is equal to itself here, and -0.0 is not 0.0


def change_set(before, after, key=KEY, snapshot_id: int = 7) -> ChangeSet:
    removed, added = rows_of(before), rows_of(after)
    gone, come = survivors(row_digests(removed), row_digests(added))
    changes = pair(removed.filter(pa.array(gone)), added.filter(pa.array(come)), key, SCHEMA)
    return ChangeSet.of(CommitHeader("sales.orders", "a-uuid", snapshot_id, 6, 1_700_000_000_000), SCHEMA, key, changes)


# Mutations. The mutator may do anything to a feed but compute SHA-256 backwards: rows, ops, order, places,
# proofs, neighbours, bounds, counts, the commit's identity, the names of columns. The leaf is what the
# consumer trusts.

RANDOM = random.Random(20261116)


def random_state(size: int) -> dict:
    return {
        (RANDOM.choice(["DE", "FR", "IT"]), RANDOM.randrange(200)): {
            "amount": Decimal(RANDOM.randrange(-999, 999)).scaleb(-2),
            "at": RANDOM.randrange(2**50),
            "tags": RANDOM.choice([None, [], ["a"], ["a", None]]),
            "ratio": RANDOM.choice([None, 0.0, -0.0, 1.5]),
        }
        for _ in range(size)
    }


def leaf_of(changes: ChangeSet) -> SimpleNamespace:
    return SimpleNamespace(
        table=changes.commit.table,
        table_uuid=changes.commit.table_uuid,
        snapshot_id=changes.commit.snapshot_id,
        parent_id=changes.commit.parent_id,
        committed_ms=changes.commit.committed_ms,
        sequenced_ms=changes.commit.committed_ms,
        schema_sha256=sha256(SCHEMA_JSON).hexdigest(),
        changes_root=changes.root.hex(),
        changes_count=changes.count,
        sequence=1,
        operation="append",
        ref="main",
        attested="lake",
    )
