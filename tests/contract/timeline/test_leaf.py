"""Leaves and keys: one record, one spelling; order in bytes is order in time."""

from __future__ import annotations

import doctest
import json
from hashlib import sha256
from pathlib import Path

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.errors import Invalid, Unverified
from catalog.timeline.log import store_keys
from catalog.timeline.log.leaf import MAX_BYTES, Leaf, canonical_sha256

ids = st.none() | st.integers(1, 2**63 - 1)
digests = st.none() | st.binary(min_size=32, max_size=32).map(bytes.hex)
small = st.integers(0, 2**53 - 1)
leaves = st.builds(
    Leaf,
    table=st.text(max_size=40) | st.text('"\\\x00\x08\x0b\x1f\x7f\u2028é', max_size=20),
    table_uuid=st.uuids().map(str),
    snapshot_id=ids,
    parent_id=ids,
    sequence=small,
    committed_ms=small,
    sequenced_ms=small,
    operation=st.sampled_from(["append", "tag", "rollback"]),
    ref=st.none() | st.just("main"),
    schema_sha256=digests,
    metadata_sha256=digests,
    manifest_list_sha256=digests,
    content_root=digests,
    content_count=small,
    changes_root=digests,
    changes_count=st.none() | small,
    rows_digest=digests,
    attested=st.sampled_from([None, "lake", "writer"]),
    map_root=digests,
    state_digest=digests,
    state_root=digests,
    state_missing=st.sampled_from([None, "size", "unreadable"]),
)


def a_leaf(**changed: object) -> Leaf:
    facts: dict[str, object] = {
        "table": "sales.orders",
        "table_uuid": "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d",
        "snapshot_id": 2**63 - 1,
        "parent_id": None,
        "sequence": 1,
        "committed_ms": 1_800_000_000_000,
        "sequenced_ms": 1_800_000_000_001,
        "operation": "append",
        "ref": "main",
        "schema_sha256": "00" * 32,
        "metadata_sha256": "00" * 32,
    }
    return Leaf(**{**facts, **changed})  # type: ignore[arg-type]


@given(leaves)
def test_a_leaf_is_read_back_as_it_was_written(leaf: Leaf) -> None:
    assert Leaf.decode(leaf.encode()) == leaf
    assert len(leaf.encode()) <= MAX_BYTES


@given(leaves)
def test_the_bytes_of_a_leaf_are_canonical_by_another_encoder(leaf: Leaf) -> None:
    assert rfc8785.dumps(json.loads(leaf.encode())) == leaf.encode()


@pytest.mark.parametrize(
    "wrong", [{"sequence": 1.0}, {"sequence": 2**53}, {"sequence": True}, {"table": [1.5]}, {"ref": 7}]
)
def test_what_has_two_spellings_is_never_a_leaf(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is not"):
        a_leaf(**wrong).encode()


def test_the_bytes_of_a_leaf_are_these_and_no_others() -> None:
    assert a_leaf().encode() == (
        b'{"attested":null,"changes_count":null,"changes_root":null,"committed_ms":1800000000000,"content_count":0,'
        b'"content_root":null,"format":"strandline/commit@v2","manifest_list_sha256":null,"map_root":null,'
        b'"metadata_sha256":"'
        + b"0" * 64
        + b'","operation":"append","parent_id":null,"ref":"main","rows_digest":null,"schema_sha256":"'
        + b"0" * 64
        + b'","sequence":1,"sequenced_ms":1800000000001,"snapshot_id":"9223372036854775807",'
        b'"state_digest":null,"state_missing":null,"state_root":null,"table":"sales.orders","table_uuid":"6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d"}'
    )


def test_a_leaf_of_the_first_format_is_refused_with_what_to_do() -> None:
    old = (Path(__file__).parents[2] / "golden" / "timeline" / "leaf-v1.json").read_bytes()
    with pytest.raises(Unverified, match="commit@v1, and this version reads only strandline/commit@v2"):
        Leaf.decode(old)


def test_a_leaf_with_every_digest_and_the_longest_names_of_glue_fits() -> None:
    digests = dict.fromkeys(
        ["manifest_list_sha256", "content_root", "changes_root", "rows_digest", "map_root", "state_digest"], "00" * 32
    )
    most = {"parent_id": -(2**63), "snapshot_id": -(2**63), "sequence": 2**53 - 1, "changes_count": 2**53 - 1}
    most |= {"content_count": 2**53 - 1, "committed_ms": 9_999_999_999_999, "sequenced_ms": 9_999_999_999_999}
    rest = {"operation": "transaction", "attested": "writer", "state_root": "00" * 32}
    leaf = a_leaf(table="d" * 255 + "." + "t" * 255, **digests, **most, **rest)
    assert len(leaf.encode()) == 1654 <= MAX_BYTES


def test_any_leaf_may_be_the_last_of_its_batch_and_has_room_for_the_map_root() -> None:
    spare = MAX_BYTES - len(a_leaf(map_root="00" * 32).encode())
    name = "sales.orders" + "x" * spare
    assert len(a_leaf(table=name, map_root="00" * 32).encode()) == MAX_BYTES
    a_leaf(table=name).encode()
    for root in (None, "00" * 32):
        with pytest.raises(Invalid, match="shorter name"):
            a_leaf(table=name + "x", map_root=root).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        a_leaf().encode() + b" ",
        a_leaf().encode().replace(b"commit@v2", b"commit@v3"),
        a_leaf().encode().replace(b'"sequence":1,', b'"sequence":1.0,'),
        json.dumps(json.loads(a_leaf().encode())).encode(),
        a_leaf().encode()[:-1] + b',"zz":1}',
        a_leaf().encode().replace(b'"sequence":1,', b'"sequence":1,"sequence":1,'),
        a_leaf().encode().replace(b'"sequence":1,', b'"sequence":null,'),
        a_leaf().encode().replace(b'"sequence":1,', b'"sequence":9007199254740992,'),
        a_leaf().encode().replace(b"sales", b"sal\\u0065s"),
        a_leaf().encode().replace(b"9223372036854775807", b"09"),
        a_leaf().encode().replace(b"sales", b"sales\xff"),
        b"[" * 100_000,
    ],
)
def test_what_is_not_exactly_a_leaf_is_refused(data: bytes) -> None:
    with pytest.raises(Unverified):
        Leaf.decode(data)


def test_a_leaf_over_the_limit_is_refused_with_what_to_do() -> None:
    with pytest.raises(Invalid, match="shorter name"):
        a_leaf(table="n" * 1200).encode()


def test_the_digest_of_a_schema_is_over_its_canonical_form() -> None:
    assert canonical_sha256({"b": 1, "a": [None]}) == sha256(b'{"a":[null],"b":1}').hexdigest()
    assert canonical_sha256({"a": 2**60}) == sha256(b'{"a":"1152921504606846976"}').hexdigest()


def test_the_examples_in_the_key_module_hold() -> None:
    assert doctest.testmod(store_keys) == doctest.TestResults(failed=0, attempted=17)


@given(st.tuples(small, small), st.tuples(small, small))
def test_keys_sort_as_their_numbers_do(a: tuple[int, int], b: tuple[int, int]) -> None:
    assert (store_keys.time(*a) < store_keys.time(*b)) == (a < b)
    assert (store_keys.leaf(a[0]) < store_keys.leaf(b[0])) == (a[0] < b[0])


def test_a_consumer_or_kind_with_a_slash_cannot_reach_into_another_key() -> None:
    with pytest.raises(Invalid, match="slash"):
        store_keys.watermark("a/b", "c")
    with pytest.raises(Invalid, match="slash"):
        store_keys.meta("a/b", "c")
