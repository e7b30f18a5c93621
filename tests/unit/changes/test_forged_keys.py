"""Which columns are the key, in which order, and that the changes are in that order, is not the feed's to say."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pytest

from catalog.changes import ChangeSet, KeyRange, hashing, verify, verify_feed
from catalog.changes.change_set import Neighbour, PartialProof
from catalog.changes.records import changes_schema, leaf_hashes, records
from catalog.core.errors import Unverified
from tests.property.changes.feeds import KEY, SCHEMA, SCHEMA_JSON, change_set
from tests.worlds.forged_log import SIGNER, UUID, ForgedLog, ForgedTable, rows

LOG_KEY = SIGNER.verifier_key


def in_order(lines: list[dict], key: tuple[str, ...] = KEY) -> ChangeSet:
    """A change set with its lines in any order, and the root that they have in it."""
    made = change_set({}, rows(("DE", 1)), key)
    changes = pa.Table.from_pylist(lines, schema=made.changes.schema)
    return ChangeSet.of(made.commit, SCHEMA, key, changes)


def signed(changes: ChangeSet, **overrides: object) -> ForgedTable:
    table = ForgedTable(ForgedLog())
    table.put(changes, {}, **overrides)
    return table


def test_a_key_in_another_order_does_not_prove_that_a_row_is_absent() -> None:
    """Changes are sorted by (region, id). Told to be sorted by (id, region), they seem to lack ("FR", 1)."""
    table = ForgedTable(ForgedLog())
    table.commit(rows(("DE", 1), ("DE", 5), ("FR", 1), ("FR", 2)))
    (whole,) = table.feed()
    verify(whole.between(("FR", 1), ("FR", 1)), LOG_KEY)
    swapped = ("id", "region")
    lying = replace(whole, key=swapped)
    with pytest.raises(Unverified, match="key"):
        verify(lying, LOG_KEY)
    # "There is no row with id 3 to 4, region FR" by the neighbours at indices 1 and 2: (5, DE) and (1, FR).
    block = records(whole.changes, KEY)
    ends = [Neighbour(block[at].tobytes(), _key(whole, at, swapped)) for at in (0, 1)]
    proof = whole.select([0, 1]).part
    assert proof is not None
    part = PartialProof((0, 1), proof.proof, KeyRange((3, "DE"), (3, "ZZ")), ends[0], ends[1])
    absent = replace(whole, key=swapped, changes=whole.changes.slice(0, 0), part=part)
    with pytest.raises(Unverified, match="key"):
        verify(absent, LOG_KEY)


def _key(changes: ChangeSet, at: int, key: tuple[str, ...]) -> pa.Table:
    line = changes.changes.to_pylist()[at]["after"]
    fields = pa.schema([SCHEMA.field(name) for name in key])
    return pa.Table.from_pylist([{name: line[name] for name in key}], schema=fields)


@pytest.mark.parametrize("key", [("id", "region"), ("region",), (), ("region", "id", "at")])
def test_the_key_is_the_identifier_fields_of_the_committed_schema(key: tuple[str, ...]) -> None:
    """Also when the operator signs a root that was computed by another key."""
    table = signed(change_set({}, rows(("DE", 1), ("FR", 1)), key))
    with pytest.raises(Unverified, match="key"):
        verify(table.feed()[0], LOG_KEY)


@pytest.mark.parametrize("key", [("id", "region"), ("region", "id"), ("id",)])
def test_a_key_that_only_a_property_states_is_in_the_order_of_field_ids(key: tuple[str, ...]) -> None:
    plain = SCHEMA_JSON.replace(b'"identifier-field-ids":[1,2],', b"")
    table = signed(change_set({}, rows(("DE", 1), ("FR", 1)), key), schema_sha256=sha256(plain).hexdigest())
    shown = replace(table.feed()[0], schema_json=plain)
    if key == ("id", "region"):
        with pytest.raises(Unverified, match="key"):
            verify(shown, LOG_KEY)
    else:
        verify(shown, LOG_KEY)


def test_the_schema_is_the_committed_one_in_every_part_that_digests_do_not_cover() -> None:
    table = ForgedTable(ForgedLog())
    table.commit(rows(("DE", 1)))
    (feed,) = table.feed()
    for forged in (
        SCHEMA_JSON.replace(b"[1,2]", b"[2,1]"),
        SCHEMA_JSON.replace(b'"identifier-field-ids"', b'"identifier-field-ids":[1],"identifier-field-ids"'),
    ):
        with pytest.raises(Unverified, match="schema"):
            verify(replace(feed, schema_json=forged), LOG_KEY)
    # A signed schema with two identifier-field-ids: which of them counts would depend on the reader.
    twice = SCHEMA_JSON.replace(b'"identifier-field-ids"', b'"identifier-field-ids":[2],"identifier-field-ids"')
    other = signed(change_set({}, rows(("DE", 1))), schema_sha256=sha256(twice).hexdigest())
    with pytest.raises(Unverified, match="twice"):
        verify(replace(other.feed()[0], schema_json=twice), LOG_KEY)
    absent = signed(change_set({}, rows(("DE", 1))), schema_sha256=None)
    with pytest.raises(Unverified, match="schema"):
        verify(absent.feed()[0], LOG_KEY)


def test_columns_have_the_types_of_the_committed_schema() -> None:
    """Types that share a digest are told apart: a date in milliseconds has other bounds than one in days."""
    made = change_set({}, rows(("DE", 1)))
    for name, kind in (("id", pa.int32()), ("at", pa.timestamp("ms", "UTC")), ("amount", pa.decimal128(12, 2))):
        schema = pa.schema([field.with_type(kind) if field.name == name else field for field in SCHEMA])
        lines = [line | {"after": line["after"] | {"at": None}} for line in made.changes.to_pylist()]
        other, same = (
            ChangeSet.of(made.commit, columns, KEY, pa.Table.from_pylist(lines, schema=changes_schema(columns)))
            for columns in (schema, SCHEMA)
        )
        assert other.root == same.root
        verify(signed(same).feed()[0], LOG_KEY)
        with pytest.raises(Unverified, match="columns"):
            verify(signed(other).feed()[0], LOG_KEY)


def test_changes_that_are_not_in_order_prove_nothing() -> None:
    """The tree is signed over changes out of order: ("DE", 5) seems to be absent between ("DE", 1) and ("FR", 1)."""
    lines = change_set({}, rows(("DE", 1), ("DE", 5), ("FR", 1), ("FR", 2))).changes.to_pylist()
    table = signed(in_order([lines[0], lines[2], lines[1], lines[3]]))
    (whole,) = table.feed()
    with pytest.raises(Unverified, match="order"):
        verify(whole, LOG_KEY)
    for indices in ([0, 1, 2, 3], [1, 2]):
        with pytest.raises(Unverified, match="order"):
            verify(whole.select(indices), LOG_KEY)
    # A range whose own neighbours are out of order.
    block = records(whole.changes, KEY)
    shown = whole.select([1, 2]).part
    assert shown is not None
    ends = [Neighbour(block[at].tobytes(), _key(whole, at, KEY)) for at in (1, 2)]
    for keys in (KeyRange(("FR", 3), ("DE", 4)), KeyRange(("FR", 1, 0), ("DE", 5))):
        part = PartialProof((1, 2), shown.proof, keys, ends[0], ends[1])
        with pytest.raises(Unverified):
            verify(replace(whole, changes=whole.changes.slice(0, 0), part=part), LOG_KEY)
    reordered = signed(in_order(lines[:2] + lines[:1] + lines[2:]))  # one of them twice, the second time out of order
    with pytest.raises(Unverified, match="order"):
        verify(reordered.feed()[0], LOG_KEY)


def test_changes_of_one_key_are_in_order_too() -> None:
    insert = change_set({}, rows(("DE", 1), cents=1)).changes.to_pylist()
    delete = change_set(rows(("DE", 1), cents=2), {}).changes.to_pylist()
    with pytest.raises(Unverified, match="order"):
        verify(signed(in_order(insert + delete)).feed()[0], LOG_KEY)


def test_an_update_keeps_its_key_and_changes_its_row() -> None:
    (line,) = change_set(rows(("DE", 1)), rows(("DE", 1), cents=7)).changes.to_pylist()
    assert line["op"] == "UPDATE"
    verify(signed(in_order([line])).feed()[0], LOG_KEY)
    moved = line | {"before": line["before"] | {"id": 2}}
    with pytest.raises(Unverified, match="another key"):
        verify(signed(in_order([moved])).feed()[0], LOG_KEY)
    with pytest.raises(Unverified, match="changes nothing"):
        verify(signed(in_order([line | {"before": line["after"]}])).feed()[0], LOG_KEY)
    plain = SCHEMA_JSON.replace(b'"identifier-field-ids":[1,2],', b"")
    keyless = signed(in_order([line], ()), schema_sha256=sha256(plain).hexdigest())
    with pytest.raises(Unverified, match="UPDATE"):
        verify(replace(keyless.feed()[0], schema_json=plain), LOG_KEY)


def test_the_forger_hashes_as_the_verifier_does() -> None:
    """Otherwise every test here would pass for a reason of its own."""
    made = change_set({}, rows(("DE", 1), ("FR", 1)))
    block = records(made.changes, KEY)
    assert hashing.root(leaf_hashes(block)) == made.root and isinstance(block, np.ndarray)
    table = signed(made)
    assert verify_feed(table.feed(), LOG_KEY, table_uuid=UUID) == 1
