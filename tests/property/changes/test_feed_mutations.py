"""No mutation of a change feed is believed: of its lines, its head, its proofs, or the range that it claims."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from catalog.changes import (
    ChangeSet,
    KeyRange,
    verify_leaf,
)
from catalog.changes.change_set import Neighbour
from catalog.changes.records import changes_schema
from catalog.core.errors import Unverified
from tests.property.changes.feeds import (
    RANDOM,
    SCHEMA,
    SCHEMA_JSON,
    change_set,
    leaf_of,
    random_state,
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
    return replace(feed, key=RANDOM.choice([(), ("id",), ("region",), ("id", "region"), ("id", "region", "at")]))


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
