"""Change feeds: they say what a dict model says, and no mutation of one is believed."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from decimal import Decimal
from hashlib import sha256
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.changes import (
    ChangeSet,
    Commit,
    KeyRange,
    collapse,
    from_ipc,
    from_json_lines,
    to_ipc,
    to_json_lines,
    verify,
    verify_leaf,
    verify_root,
)
from catalog.changes.digest import row_digests
from catalog.changes.feed import Neighbour
from catalog.changes.pairing import pair, survivors
from catalog.changes.records import changes_schema
from catalog.errors import Invalid, LakeError, Unverified
from catalog.merkle import Checkpoint, CompactRange, Ed25519Signer, leaf_hash, sign_note, tree
from catalog.merkle import proof as proof_file


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
    b'{"id":7,"name":"ratio","type":"double"}],"schema-id":0,"type":"struct"}'
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
    found = [{"region": region, "id": number, **rest} for (region, number), rest in state.items()]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def fingerprint(rest) -> str:
    return repr(sorted(rest.items()))  # NaN is equal to itself here, and -0.0 is not 0.0


def change_set(before, after, key=KEY, snapshot_id: int = 7) -> ChangeSet:
    removed, added = rows_of(before), rows_of(after)
    gone, come = survivors(row_digests(removed), row_digests(added))
    changes = pair(removed.filter(pa.array(gone)), added.filter(pa.array(come)), key, SCHEMA)
    return ChangeSet.of(Commit("sales.orders", "a-uuid", snapshot_id, 6, 1_700_000_000_000), SCHEMA, key, changes)


def plain(changes: pa.Table) -> list[tuple]:
    """(key, op, before, after) with rows as text, in the feed's order."""
    found = []
    ints = changes_schema(pa.schema([named("at", pa.int64(), 4) if f.name == "at" else f for f in SCHEMA]))
    for line in changes.cast(ints).to_pylist():
        whole = line["after"] or line["before"]
        rests = [
            line[name] and fingerprint({k: v for k, v in line[name].items() if k not in KEY})
            for name in ("before", "after")
        ]
        found.append(((whole["region"], whole["id"]), line["op"], *rests))
    return found


@settings(max_examples=100, deadline=None)
@given(states, states)
def test_a_feed_is_what_the_model_says_in_the_order_of_keys(before, after):
    expected = []
    for key in sorted(before.keys() | after.keys()):
        old, new = (fingerprint(state[key]) if key in state else None for state in (before, after))
        if old != new:
            expected.append((key, "INSERT" if old is None else "DELETE" if new is None else "UPDATE", old, new))
    found = change_set(before, after)
    assert plain(found.changes) == expected
    assert found.count == len(expected)
    verify_root(found)


@settings(max_examples=40, deadline=None)
@given(st.lists(states, min_size=2, max_size=5))
def test_the_net_of_many_commits_is_the_difference_of_their_ends(history):
    sets = [change_set(a, b) for a, b in itertools.pairwise(history)]
    net = collapse(sets)
    assert plain(net) == plain(change_set(history[0], history[-1]).changes)


@settings(max_examples=60, deadline=None)
@given(st.lists(keys, max_size=12), st.lists(keys, max_size=12), st.randoms())
def test_without_a_key_rows_are_counted(before, after, shuffle):
    """Rows without a key, many of them equal: what is left over on each side is a DELETE or an INSERT."""

    def rows(found):
        return pa.Table.from_pylist([{"region": region, "id": number} for region, number in found], schema=SCHEMA)

    def feed(left, right):
        gone, come = survivors(row_digests(rows(left)), row_digests(rows(right)))
        changes = pair(rows(left).filter(pa.array(gone)), rows(right).filter(pa.array(come)), (), SCHEMA)
        return ChangeSet.of(Commit("t", "u", 1, None, 0), SCHEMA, (), changes)

    found = feed(before, after)
    verify_root(found)
    expected = []
    for one in set(before) | set(after):
        more = after.count(one) - before.count(one)
        expected += [("INSERT" if more > 0 else "DELETE", *one)] * abs(more)
    lines = found.changes.to_pylist()
    sides = [(line["op"], (line["after"] or line["before"])) for line in lines]
    assert sorted((op, row["region"], row["id"]) for op, row in sides) == sorted(expected)
    shuffled = shuffle.sample(before, len(before)), shuffle.sample(after, len(after))
    assert feed(*shuffled).root == found.root


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), values), max_size=8),
    st.lists(st.tuples(st.integers(0, 2), values), max_size=8),
)
def test_rows_that_share_a_key_still_give_exact_changes(before, after):
    """Nothing in Iceberg keeps a key unique. Whatever the feed says, applying it leads from one multiset
    to the other."""

    def rows(found):
        return pa.Table.from_pylist([{"region": "x", "id": number, **rest} for number, rest in found], schema=SCHEMA)

    left, right = rows(before), rows(after)
    gone, come = survivors(row_digests(left), row_digests(right))
    changes = pair(left.filter(pa.array(gone)), right.filter(pa.array(come)), KEY, SCHEMA)
    state = [value.tobytes() for value in row_digests(left)]
    for line in plain(changes):
        assert line[2] != line[3]
    from catalog.changes.records import side

    for digest in row_digests(side(changes, "before")):
        state.remove(digest.tobytes())
    state += [value.tobytes() for value in row_digests(side(changes, "after"))]
    assert sorted(state) == sorted(value.tobytes() for value in row_digests(right))
    updates = [line for line in plain(changes) if line[1] == "UPDATE"]
    for number in range(3):
        mine = [line for line in plain(changes) if line[0] == ("x", number)]
        assert not ({"INSERT", "DELETE"} <= {line[1] for line in mine}), (mine, updates)


@settings(max_examples=60, deadline=None)
@given(states, states, st.integers(1, 5), st.none() | keys, st.none() | keys)
def test_parts_of_a_feed_prove_themselves(before, after, size, low, high):
    whole = change_set(before, after)
    pages = list(whole.pages(size))
    for page in pages:
        verify_root(page)
    assert [line for page in pages for line in plain(page.changes)] == plain(whole.changes)

    wanted = whole.between(low, high)
    verify_root(wanted)
    expected = [
        line for line in plain(whole.changes) if (low is None or line[0] >= low) and (high is None or line[0] <= high)
    ]
    assert plain(wanted.changes) == expected

    updates = whole.where(pc.field("op") == "UPDATE")
    verify_root(updates)
    assert plain(updates.changes) == [line for line in plain(whole.changes) if line[1] == "UPDATE"]


def test_a_range_may_be_of_the_first_key_columns():
    whole = change_set({}, {(region, n): {} for region in ("DE", "FR", "IT") for n in range(3)})
    part = whole.between(("FR",), ("FR",))
    verify_root(part)
    assert [line[0] for line in plain(part.changes)] == [("FR", 0), ("FR", 1), ("FR", 2)]


@settings(max_examples=100, deadline=None)
@given(states, states, st.sampled_from(["whole", "page", "range", "selection"]))
def test_feeds_survive_the_wire(before, after, kind):
    found = replace(change_set(before, after), schema_json=SCHEMA_JSON)
    match kind:
        case "page":
            found = next(found.pages(3), found)
        case "range":
            found = found.between(("DE",), ("FR", 2))
        case "selection":
            found = found.select(range(0, len(found), 2))
    for again in (from_ipc(to_ipc(found)), from_json_lines(list(to_json_lines(found)))):
        verify_root(again)
        assert plain(again.changes) == plain(found.changes)
        assert (again.commit, again.key, again.root, again.count) == (
            found.commit,
            found.key,
            found.root,
            found.count,
        )
        assert again.schema.equals(found.schema, check_metadata=True)
        assert again.schema_json == SCHEMA_JSON
        assert (again.part and again.part.indices) == (found.part and found.part.indices)


@pytest.mark.parametrize("data", [b"", b"x" * 100, to_ipc(change_set({}, {("DE", 1): {}}))[:-400]])
def test_what_is_no_feed_is_refused(data):
    with pytest.raises(Invalid):
        from_ipc(data)
    with pytest.raises(Invalid):
        from_json_lines([data.decode("latin-1")])


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
        table_uuid=changes.commit.table_uuid,
        snapshot_id=changes.commit.snapshot_id,
        parent_id=changes.commit.parent_id,
        committed_ms=changes.commit.committed_ms,
        schema_sha256=sha256(SCHEMA_JSON).hexdigest(),
        changes_root=changes.root.hex(),
        changes_count=changes.count,
        sequence=1,
        operation="append",
        ref="main",
    )


def with_lines(changes: ChangeSet, lines: list[dict]) -> ChangeSet:
    return replace(changes, changes=pa.Table.from_pylist(lines, schema=changes.changes.schema))


def drop(feed, lines, other):
    del lines[RANDOM.randrange(len(lines))]


def repeat(feed, lines, other):
    lines.insert(RANDOM.randrange(len(lines) + 1), RANDOM.choice(lines))


def swap(feed, lines, other):
    a, b = RANDOM.sample(range(len(lines)), 2) if len(lines) > 1 else (0, 0)
    lines[a], lines[b] = lines[b], lines[a]


def alter_value(feed, lines, other):
    line = RANDOM.choice(lines)
    side = RANDOM.choice([name for name in ("before", "after") if line[name]])
    field = RANDOM.choice(["region", "id", "amount", "tags", "ratio"])
    fresh = {"region": "XX", "id": RANDOM.randrange(10**6), "amount": None, "tags": ["z"], "ratio": 9.25}
    line[side][field] = fresh[field]


def alter_op(feed, lines, other):
    line = RANDOM.choice(lines)
    line["op"] = RANDOM.choice([op for op in ("INSERT", "UPDATE", "DELETE", "insert") if op != line["op"]])


def swap_sides(feed, lines, other):
    line = RANDOM.choice(lines)
    line["before"], line["after"] = line["after"], line["before"]


def splice(feed, lines, other):
    lines[RANDOM.randrange(len(lines))] = RANDOM.choice(other.changes.to_pylist())


def rotate(feed, lines, other):
    cut = RANDOM.randrange(len(lines))
    lines[:] = lines[cut:] + lines[:cut]


def cut_off(feed, lines, other):
    del lines[RANDOM.randrange(len(lines)) :]


OF_LINES = [drop, repeat, swap, alter_value, alter_op, swap_sides, splice, rotate, cut_off]


def alter_commit(feed, other):
    name, value = RANDOM.choice(
        [
            ("snapshot_id", 8),
            ("parent_id", None),
            ("committed_ms", 1),
            ("table_uuid", "b-uuid"),
            ("parent_id", 5),
        ]
    )
    return replace(feed, commit=replace(feed.commit, **{name: value}))


def other_root(feed, other):
    return replace(feed, root=other.root)


def other_count(feed, other):
    return replace(feed, count=feed.count + RANDOM.choice([-1, 1]))


def other_key(feed, other):
    return replace(feed, key=RANDOM.choice([(), ("id",), ("region",), ("id", "region", "at")]))


def rename_column(feed, other):
    a, b = RANDOM.sample(range(len(SCHEMA)), 2)
    names = SCHEMA.names
    names[a], names[b] = names[b], names[a]
    schema = pa.schema([field.with_name(name) for field, name in zip(SCHEMA, names, strict=True)])
    columns = [
        feed.changes.column(0),
        *(feed.changes.column(at).cast(pa.struct(list(SCHEMA))) for at in (1, 2)),
    ]
    storage = [pa.concat_arrays(c.chunks) if c.num_chunks else pa.array([], c.type) for c in columns[1:]]
    renamed = [
        pa.StructArray.from_arrays(array.flatten(), fields=list(schema), mask=array.is_null()) for array in storage
    ]
    return replace(
        feed,
        schema=schema,
        changes=pa.Table.from_arrays([columns[0], *renamed], schema=changes_schema(schema)),
    )


def other_schema(feed, other):
    return replace(feed, schema_json=SCHEMA_JSON.replace(b"ratio", b"share"))


OF_FEEDS = [alter_commit, other_root, other_count, other_key, rename_column, other_schema]


def flip_proof(feed, other):
    proof = list(feed.part.proof)
    if not proof:
        return None
    at = RANDOM.randrange(len(proof))
    match RANDOM.randrange(4):
        case 0:
            del proof[at]
        case 1:
            proof.insert(at, proof[at])
        case 2:
            changed = bytearray(proof[at])
            changed[RANDOM.randrange(32)] ^= 1 << RANDOM.randrange(8)
            proof[at] = bytes(changed)
        case 3:
            b = RANDOM.randrange(len(proof))
            if proof[at] == proof[b]:
                return None
            proof[at], proof[b] = proof[b], proof[at]
    return replace(feed, part=replace(feed.part, proof=tuple(proof)))


def move_places(feed, other):
    places = list(feed.part.indices)
    if not places:
        return None
    match RANDOM.randrange(3):
        case 0:
            shift = RANDOM.choice([-1, 1])
            places = [at + shift for at in places]
        case 1:
            places.pop(RANDOM.randrange(len(places)))
        case 2:
            places[RANDOM.randrange(len(places))] = RANDOM.randrange(feed.count)
            if places == list(feed.part.indices):
                return None
    return replace(feed, part=replace(feed.part, indices=tuple(places)))


def pretend_whole(feed, other):
    return replace(feed, part=None) if len(feed) < feed.count else None


OF_PARTS = [flip_proof, move_places, pretend_whole]


def narrow_honestly(feed, other, whole):
    """A key range with its last change left out, and a proof remade to fit: only the neighbours give it away."""
    if not len(feed):
        return None
    part = feed.part
    end = part.indices[-1] - (part.right is not None)
    short = whole.select(range(part.indices[0] + (part.left is not None), end))
    shown = list(range(part.indices[0], end))
    if not shown:
        return None
    proof = whole.select(shown).part.proof
    return replace(feed, changes=short.changes, part=replace(part, indices=tuple(shown), proof=proof, right=None))


def widen_claim(feed, other, whole):
    """The same changes, claimed to be all of a wider range."""
    wider = [
        KeyRange(None, feed.part.keys.high) if feed.part.left is not None else None,
        KeyRange(feed.part.keys.low, None) if feed.part.right is not None else None,
    ]
    fitting = [keys for keys in wider if keys is not None]
    return replace(feed, part=replace(feed.part, keys=RANDOM.choice(fitting))) if fitting else None


def lying_neighbour(feed, other, whole):
    """A neighbour that shows another key than its record has."""
    side = RANDOM.choice(["left", "right"])
    neighbour = getattr(feed.part, side)
    if neighbour is None:
        return None
    key = pa.Table.from_pylist([{"region": {"left": "AA", "right": "ZZ"}[side], "id": 5}], schema=neighbour.key.schema)
    return replace(feed, part=replace(feed.part, **{side: Neighbour(neighbour.record, key)}))


def drop_neighbour(feed, other, whole):
    side = RANDOM.choice(["left", "right"])
    if getattr(feed.part, side) is None:
        return None
    return replace(feed, part=replace(feed.part, **{side: None}))


OF_RANGES = [narrow_honestly, widen_claim, lying_neighbour, drop_neighbour]


def mutate(feed: ChangeSet, other: ChangeSet, whole: ChangeSet) -> tuple[str, ChangeSet | None]:
    """A mutation's name and the mutated feed, None when it came out as it was."""
    kinds = [*OF_FEEDS, *(OF_LINES * 2 if len(feed) else []), *(OF_PARTS * 2 if feed.part else [])]
    if feed.part and feed.part.keys:
        kinds += OF_RANGES * 2
    kind = RANDOM.choice(kinds)
    if kind in OF_LINES:
        lines = feed.changes.to_pylist()
        kind(feed, lines, other)
        return kind.__name__, None if lines == feed.changes.to_pylist() else with_lines(feed, lines)
    return kind.__name__, kind(feed, other, whole) if kind in OF_RANGES else kind(feed, other)


def feeds():
    """Whole feeds and parts of every kind, each with its whole."""
    for size in (1, 2, 3, 8, 30):
        whole = replace(change_set(random_state(size), random_state(size)), schema_json=SCHEMA_JSON)
        yield whole, whole
        yield whole.select(RANDOM.sample(range(len(whole)), (len(whole) + 1) // 2)), whole
        yield list(whole.pages(5))[-1], whole
        yield whole.where(pc.field("op") == "INSERT"), whole
        for low, high in (
            (("DE",), ("DE",)),
            (("DE", 100), ("FR", 100)),
            (("IT", 150), None),
            (None, ("DE", 9)),
        ):
            yield whole.between(low, high), whole


def test_every_one_of_ten_thousand_mutations_is_detected():
    originals = list(feeds())
    others = [change_set(random_state(9), random_state(9), snapshot_id=8) for _ in range(3)]
    for feed, _ in originals:
        verify_leaf(feed, leaf_of(feed))
    tried, kinds, missed = 0, set(), []
    while tried < 10_000:
        feed, whole = RANDOM.choice(originals)
        name, mutated = mutate(feed, RANDOM.choice(others), whole)
        if mutated is None:
            continue
        tried += 1
        kinds.add(name)
        try:
            verify_leaf(mutated, leaf_of(feed))
        except Unverified:
            continue
        missed.append((name, len(feed), feed.part))
    assert not missed, missed[:3]
    assert kinds == {kind.__name__ for kind in (*OF_LINES, *OF_FEEDS, *OF_PARTS, *OF_RANGES)}


# With the timeline's public key alone.

SIGNER = Ed25519Signer("strandline.example/lake", bytes(range(32)))


def in_timeline(changes: ChangeSet, **overrides) -> ChangeSet:
    """The change set with its leaf as number 3 of a signed log of six."""
    record = vars(leaf_of(changes)) | {"format": "strandline/commit@v1"} | overrides
    record |= {name: None if record[name] is None else str(record[name]) for name in ("snapshot_id", "parent_id")}
    import json

    leaf = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    hashes = [leaf_hash(leaf if at == 3 else b"another leaf") for at in range(6)]
    head, nodes = CompactRange().extend(hashes)
    stored = {(level, index): value for level, index, value in nodes}
    path = tree.inclusion_proof(3, 6, lambda wanted: [stored[at] for at in wanted])
    checkpoint = sign_note(Checkpoint(SIGNER.name, 6, head.root()).text(), [SIGNER])
    proof = proof_file.write(proof_file.ProofFile(3, tuple(path), checkpoint))
    return changes.with_evidence(leaf, proof, 3)


def test_a_feed_is_checked_with_the_public_key_alone():
    whole = replace(change_set(random_state(20), random_state(20)), schema_json=SCHEMA_JSON)
    for feed in (whole, whole.between(("DE",), ("DE",)), next(whole.pages(4))):
        sent = to_ipc(in_timeline(feed))
        verify(from_ipc(sent), SIGNER.verifier_key)
        verify(from_json_lines(list(to_json_lines(in_timeline(feed)))), [SIGNER.verifier_key])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda feed: replace(feed, evidence=None), "no evidence"),
        (lambda feed: replace(feed, commit=replace(feed.commit, index=4)), "leaf 3"),
        (
            lambda feed: replace(feed, evidence=replace(feed.evidence, leaf=feed.evidence.leaf + b" ")),
            "not in the signed",
        ),
        (lambda feed: replace(feed, schema_json=None), "vouches for its names"),
        (lambda feed: replace(feed, changes=feed.changes.slice(1)), "dropped, altered, repeated or moved"),
    ],
)
def test_what_does_not_hold_is_named(spoil, reason):
    feed = in_timeline(replace(change_set(random_state(5), random_state(5)), schema_json=SCHEMA_JSON))
    with pytest.raises(Unverified, match=reason):
        verify(spoil(feed), SIGNER.verifier_key)


def test_another_key_and_a_leaf_without_changes_are_refused():
    feed = replace(change_set(random_state(5), random_state(5)), schema_json=SCHEMA_JSON)
    with pytest.raises(Unverified, match="not signed by a known key"):
        verify(in_timeline(feed), Ed25519Signer("strandline.example/lake", bytes(32)).verifier_key)
    with pytest.raises(Unverified, match="never computed"):
        verify(in_timeline(feed, changes_root=None), SIGNER.verifier_key)


def test_a_part_is_not_divided_again_and_keys_are_needed_for_ranges():
    feed = change_set(random_state(5), random_state(5))
    with pytest.raises(Invalid, match="part"):
        feed.select([0]).select([0])
    with pytest.raises(Invalid, match="no key"):
        change_set({}, random_state(3), key=()).between(("DE",))
    with pytest.raises(LakeError, match="cannot be a key"):
        change_set({}, random_state(3), key=("ratio",))
