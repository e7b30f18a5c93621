"""The attestation: the same bytes whoever computes it; used when right, replaced when not."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.errors import NotFound, Unverified
from catalog.timeline.sequencer.attestation import Attestation, Attestations, ObjectDigest, attestation_key, compute
from tests.worlds.timeline import ROWS, World


def commit(world: World) -> tuple[Any, Any, str]:
    table = world.table()
    table.append(ROWS)
    table.append(ROWS)
    return table, table.current_snapshot(), str(table.metadata.table_uuid)


def attestations(world: World) -> Attestations:
    return Attestations(world.client("s3"), world.bucket)


def test_it_lists_exactly_what_the_commit_added_with_the_digests_of_its_bytes(world: World) -> None:
    table, snapshot, uuid = commit(world)
    before = {entry.path for entry in compute(uuid, table.metadata.snapshots[0], table.io).entries}
    attestation = compute(uuid, snapshot, table.io)
    root = f"s3://{world.bucket}/"
    objects = {root + key: data for key, data in world.objects("tables/").items()}
    assert [entry.path for entry in attestation.entries] == sorted(entry.path for entry in attestation.entries)
    assert {entry.path.rpartition(".")[2] for entry in attestation.entries} == {"avro", "parquet"}
    assert len(attestation.entries) == 2 and before.isdisjoint(entry.path for entry in attestation.entries)
    for entry in (*attestation.entries, attestation.manifest_list):
        assert (entry.length, entry.sha256) == (
            len(objects[entry.path]),
            sha256(objects[entry.path]).hexdigest(),
        )


def test_the_staged_one_is_used_and_the_data_is_not_read_again(world: World) -> None:
    table, snapshot, uuid = commit(world)
    right = replace(compute(uuid, snapshot, table.io), changes_root="11" * 32, changes_count=3)
    attestations(world).stage(right)
    mark = world.server.log.mark()
    assert attestations(world).load(uuid, snapshot, table.io)[0] == right
    assert not [r for r in world.server.log.since(mark) if r.path.endswith(".parquet") or r.method == "PUT"]


def test_the_staged_one_stays_when_only_its_changes_differ(world: World) -> None:
    """A sequencer that was fenced compares with another parent, or cannot compare at all when that has expired. The
    leaf of the other sequencer is built from what is staged already."""
    table, snapshot, uuid = commit(world)
    right = replace(compute(uuid, snapshot, table.io), changes_root="11" * 32, changes_count=3)
    attestations(world).stage(right)
    loaded, attested = attestations(world).load(uuid, snapshot, table.io, believe_changes=False)
    assert (loaded.changes_root, attested) == (None, None)
    assert attestations(world).staged(uuid, snapshot.snapshot_id) == right


def test_a_missing_one_is_computed_to_the_same_bytes_and_staged(world: World) -> None:
    table, snapshot, uuid = commit(world)
    right = compute(uuid, snapshot, table.io)
    assert attestations(world).load(uuid, snapshot, table.io)[0] == right
    key = attestation_key(uuid, snapshot.snapshot_id)
    assert world.objects(key) == {key: right.encode()}


def wrong_ones(right: Attestation) -> list[bytes]:
    first, second = right.entries
    data = first if first.path.endswith("parquet") else second
    others = [entry for entry in right.entries if entry != data]
    return [
        b"",
        b"rubbish\n",
        replace(right, entries=(data,)).encode(),
        replace(right, entries=(*right.entries, ObjectDigest("s3://z/z", 1, "00" * 32))).encode(),
        replace(right, entries=tuple(sorted([*others, data._replace(length=data.length + 1)]))).encode(),
        replace(right, entries=tuple(sorted([data, others[0]._replace(sha256="00" * 32)]))).encode(),
        replace(right, entries=tuple(reversed(right.entries))).encode(),
        replace(right, snapshot_id=1).encode(),
        replace(right, manifest_list=right.manifest_list._replace(sha256="00" * 32), changes_count=9).encode(),
    ]


def test_a_wrong_one_is_replaced_by_what_the_objects_say(world: World) -> None:
    table, snapshot, uuid = commit(world)
    right = compute(uuid, snapshot, table.io)
    key = attestation_key(uuid, snapshot.snapshot_id)
    for wrong in wrong_ones(right):
        world.client("s3").put_object(Bucket=world.bucket, Key=key, Body=wrong)
        assert attestations(world).load(uuid, snapshot, table.io)[0] == right
        assert world.objects(key) == {key: right.encode()}


def test_the_first_one_staged_stays(world: World) -> None:
    table, snapshot, uuid = commit(world)
    right = compute(uuid, snapshot, table.io)
    attestations(world).stage(right)
    attestations(world).stage(replace(right, changes_count=7))
    assert attestations(world).staged(uuid, snapshot.snapshot_id) == right


def test_an_object_of_another_length_or_gone_is_named(world: World) -> None:
    table, snapshot, uuid = commit(world)
    path = next(e.path for e in compute(uuid, snapshot, table.io).entries if e.path.endswith("parquet"))
    key = path.removeprefix(f"s3://{world.bucket}/")
    world.client("s3").put_object(Bucket=world.bucket, Key=key, Body=b"short")
    with pytest.raises(Unverified, match="5 bytes") as refusal:
        compute(uuid, snapshot, table.io)
    assert refusal.value.subject == path
    world.client("s3").delete_object(Bucket=world.bucket, Key=key)
    with pytest.raises(NotFound):
        compute(uuid, snapshot, table.io)


entries = st.builds(ObjectDigest, st.text(), st.integers(0, 2**50), st.binary(min_size=32, max_size=32).map(bytes.hex))


ATTESTED = Attestation("uuid", 7, ObjectDigest("s3://b/l", 9, "11" * 32), (), "22" * 32, 3)


@given(
    st.builds(
        Attestation,
        st.uuids().map(str),
        st.integers(1, 2**63 - 1),
        entries,
        st.lists(entries, max_size=5).map(tuple),
    ),
    st.none() | st.integers(0, 2**50),
)
def test_it_is_read_back_as_it_was_written(attestation: Attestation, count: int | None) -> None:
    changes = {} if count is None else {"changes_root": "00" * 32, "changes_count": count}
    stated = replace(attestation, **changes)
    assert Attestation.decode(stated.encode()) == stated


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 200_000 + b"\n",
        *(
            replace(ATTESTED, **wrong).encode()
            for wrong in (
                {"changes_root": None},
                {"changes_count": None},
                {"changes_root": "zz" * 32},
                {"changes_root": "AB" * 32},
                {"changes_count": "3"},
                {"changes_count": -1},
                {"changes_count": 1.5},
                {"changes_count": True},
                {"snapshot_id": 2**63},
                {"table_uuid": None},
                {"manifest_list": ObjectDigest("s3://b/l", 9, "")},
                {"entries": (ObjectDigest("s3://b/d", "9", "11" * 32),)},
                {"entries": (ObjectDigest("s3://b/d", -9, "11" * 32),)},
            )
        ),
    ],
)
def test_what_no_leaf_may_say_is_not_taken_from_a_writer(data: bytes) -> None:
    """The sequencer would sign it, or end: a writer stages what it likes."""
    assert Attestation.decode(ATTESTED.encode()) == ATTESTED
    with pytest.raises(Unverified, match="not an attestation"):
        Attestation.decode(data)
