"""Whoever has all that is left, and guesses the erased row, cannot confirm it; and no other place has the row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pyarrow as pa
import pytest

from catalog.changes import RowProof
from catalog.changes.digest import key_digests, row_digests
from catalog.changes.records import change_hashes, changes_schema
from catalog.core.errors import Conflict
from infra.local.server import ApiServer
from tests.contract.erasure.test_erasure import people, small_table
from tests.worlds.changes import World
from tests.worlds.erasure import SECRET, age_orphans, erase, holders, make_erasure_world


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_erasure_world(server, monkeypatch)
    yield made
    made.close()


def guesses(salted: bool) -> list[bytes]:
    """What an attacker computes who knows every value of the row but the salt: digests of row, key and changes."""
    ids = [{b"PARQUET:field_id": str(at).encode()} for at in (1, 2, 3)]
    fields = [pa.field("id", pa.int64(), False, ids[0]), pa.field("name", pa.large_string(), True, ids[1])]
    row = pa.table([pa.array([7], pa.int64()), pa.array([SECRET], pa.large_string())], schema=pa.schema(fields))
    if salted:
        salt = pa.field("strandline_salt", pa.binary(16), True, ids[2])
        row = row.append_column(salt, pa.array([None], pa.binary(16)))
    struct = pa.StructArray.from_arrays([column.combine_chunks() for column in row.columns], fields=list(row.schema))
    nothing = pa.array([None], struct.type)
    schema = changes_schema(row.schema)
    kinds = schema.field("before").type
    sides = (("INSERT", nothing, struct), ("DELETE", struct, nothing))
    made = [
        pa.Table.from_arrays([pa.array([op]), before.cast(kinds), after.cast(kinds)], schema=schema)
        for op, before, after in sides
    ]
    hashes = [bytes(row_digests(row)[0]), *(bytes(change_hashes(each, ["id"])[0]) for each in made)]
    return [form for hash_ in hashes for form in (hash_, hash_.hex().encode())]


def key_guesses() -> list[bytes]:
    id_field = pa.field("id", pa.int64(), False, {b"PARQUET:field_id": b"1"})
    (digest,) = key_digests(pa.table([pa.array([7], pa.int64())], schema=pa.schema([id_field])), ["id"])
    return [bytes(digest), bytes(digest).hex().encode()]


def test_a_right_guess_of_a_salted_row_is_confirmed_by_nothing_that_is_left(world: World) -> None:
    name = small_table(world)
    erase(world, name, keys=[{"id": 7}])
    world.lake.sequencer.compact()
    assert holders(world, *guesses(salted=True), *guesses(salted=False)) == []
    # Old files of the database confirm a guess of the key, until its garbage collection and the bucket's lifecycle
    # rules have deleted them. Nothing else does.
    assert all(key.startswith("timeline.slatedb/") for key in holders(world, *key_guesses()))


def test_the_same_guess_of_a_row_without_a_salt_is_confirmed(world: World) -> None:
    """The attack works, which is why such a row is erased only by who accepts it."""
    name = world.name()
    world.lake.tables.create(name, {"id": "long", "name": "string"}, key=["id"])
    world.lake.tables.insert(name, [{"id": 7, "name": SECRET}, *people(1)])
    erase(world, name, keys=[{"id": 7}], accept_guessable=True)
    assert holders(world, SECRET.encode()) == []
    assert any(key.startswith("erasures/") for key in holders(world, *guesses(salted=False)))


def test_the_pages_of_past_states_with_the_key_are_gone_and_other_proofs_stay_valid(world: World) -> None:
    name = small_table(world)
    lake = world.another()
    earlier = lake.prove_row(name, {"id": 5}).write()
    point = lake.timeline.head().checkpoint.size - 1
    erase(world, name, keys=[{"id": 7}])
    keys = [world.signer.verifier_key]
    shown = RowProof.read(earlier).verify(keys, table=name, key={"id": 5}, index=point)
    assert shown.values is not None and shown.values["name"] == "person 5"
    now = world.another().prove_row(name, {"id": 7})
    assert not RowProof.read(now.write()).verify(keys, table=name, key={"id": 7}, index=now.index).exists
    digest = key_guesses()[0]
    pages = [page for _, page in world.another()._reader.scan(b"statenode/", b"statenode0")]
    assert pages and all(digest not in page for page in pages)


def test_landed_files_results_vectors_and_old_versions_go_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    name = small_table(world)
    s3, folder = world.client("s3"), name.replace(".", "/")
    line = f'{{"id": 7, "name": "{SECRET}"}}\n'.encode()
    for key, body in {
        f"landing/{folder}/seven.jsonl": line,
        f"landing/{folder}/one.jsonl": b'{"id": 1, "name": "person 1"}\n',
        f"quarantine/{folder}/abc": b"id,name\n7," + SECRET.encode(),
        "results/queries/1/rows.arrow": line,
        f"vectors/{name}.name.json": b"{}",
        f"vectors/{name}.name.lance/data/1.lance": line,
    }.items():
        version = s3.put_object(Bucket=world.bucket, Key=key, Body=body)["VersionId"]
        digest = sha256(body).hexdigest()
        record = {"digest": digest, "source": "a", "key": key, "version": version, "state": "committed"}
        if key.startswith("landing/"):
            s3.put_object(Bucket=world.bucket, Key=f"ingested/{digest}/a.json", Body=json.dumps(record).encode())
    world.lake.tables.expire(name, older_than=datetime.now(UTC) + timedelta(days=1))
    age_orphans(monkeypatch)
    result = erase(world, name, keys=[{"id": "7"}])
    assert holders(world, SECRET.encode()) == [f"quarantine/{folder}/abc"]
    assert [place.partition(":")[2] for place in result.remains if "quarantine" in place]
    assert world.object_keys("landing/") == {f"landing/{folder}/one.jsonl"}
    assert result.vectors == [f"{name}.name"] and world.verify().faults == ()


def test_a_feed_over_erased_changes_says_so(world: World) -> None:
    name = small_table(world)
    erase(world, name, keys=[{"id": 7}])
    with pytest.raises(Conflict, match="erased"):
        list(world.another().changes(name))


def test_a_real_vector_table_is_removed_and_said_how_to_make_again(world: World) -> None:
    name = small_table(world)
    world.lake.vectors.create(name, "name", columns=["id"])
    world.caught_up()
    assert world.verify().faults == () and holders(world, SECRET.encode())
    result = erase(world, name, keys=[{"id": 7}])
    assert holders(world, SECRET.encode()) == [] and result.vectors == [f"{name}.name"]
    assert [leaf.operation for _, leaf in world.caught_up().commits_since(f"vectors/{name}.name")][-1] == "drop"
    assert world.verify().faults == () and world.lake.vectors.list() == []
    assert any(f"strandline vectors create {name} name --column id" in place for place in result.remains)
    world.lake.vectors.create(name, "name", columns=["id"])
    world.caught_up()
    found = world.lake.vectors.search(f"{name}.name", SECRET, k=10)
    assert 7 not in found["id"].to_pylist() and world.verify().faults == ()


def test_a_rejected_file_whose_table_is_unknown_is_looked_into(world: World) -> None:
    name, key = small_table(world), "quarantine/unplaced/abc"
    world.client("s3").put_object(Bucket=world.bucket, Key=key, Body=b"id,name\n7," + SECRET.encode())
    result = erase(world, name, keys=[{"id": 7}])
    assert any(key in place for place in result.remains)
