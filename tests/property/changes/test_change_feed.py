"""Change feeds say what a dict model says, in whole and in parts, and survive the wire."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.changes import (
    ChangeSet,
    CommitHeader,
    collapse,
    from_ipc,
    from_json_lines,
    to_ipc,
    to_json_lines,
    verify_root,
)
from catalog.changes.digest import row_digests
from catalog.changes.pairing import pair, survivors
from catalog.changes.records import changes_schema
from catalog.core.errors import Invalid, LakeError, Unverified
from tests.property.changes.feeds import (
    KEY,
    SCHEMA,
    SCHEMA_JSON,
    change_set,
    fingerprint,
    keys,
    named,
    random_state,
    states,
    values,
)


def plain(changes: pa.Table) -> list[tuple]:
    """(key, op, before, after) with rows as text, in the feed's order."""
    lines = []
    ints = changes_schema(pa.schema([named("at", pa.int64(), 4) if f.name == "at" else f for f in SCHEMA]))
    for line in changes.cast(ints).to_pylist():
        whole = line["after"] or line["before"]
        rests = [
            line[name] and fingerprint({k: v for k, v in line[name].items() if k not in KEY})
            for name in ("before", "after")
        ]
        lines.append(((whole["region"], whole["id"]), line["op"], *rests))
    return lines


@settings(max_examples=100, deadline=None)
@given(states, states)
def test_a_feed_is_what_the_model_says_in_the_order_of_keys(before, after):
    expected = []
    for key in sorted(before.keys() | after.keys()):
        old, new = (fingerprint(state[key]) if key in state else None for state in (before, after))
        if old != new:
            expected.append((key, "INSERT" if old is None else "DELETE" if new is None else "UPDATE", old, new))
    feed = change_set(before, after)
    assert plain(feed.changes) == expected
    assert feed.count == len(expected)
    verify_root(feed)


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

    def rows(row_keys):
        return pa.Table.from_pylist([{"region": region, "id": number} for region, number in row_keys], schema=SCHEMA)

    def feed(left, right):
        gone, come = survivors(row_digests(rows(left)), row_digests(rows(right)))
        changes = pair(rows(left).filter(pa.array(gone)), rows(right).filter(pa.array(come)), (), SCHEMA)
        return ChangeSet.of(CommitHeader("t", "u", 1, None, 0), SCHEMA, (), changes)

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

    def rows(pairs):
        return pa.Table.from_pylist([{"region": "x", "id": number, **rest} for number, rest in pairs], schema=SCHEMA)

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
    feed = replace(change_set(before, after), schema_json=SCHEMA_JSON)
    match kind:
        case "page":
            feed = next(feed.pages(3), feed)
        case "range":
            feed = feed.between(("DE",), ("FR", 2))
        case "selection":
            feed = feed.select(range(0, len(feed), 2))
    for again in (from_ipc(to_ipc(feed)), from_json_lines(list(to_json_lines(feed)))):
        verify_root(again)
        assert plain(again.changes) == plain(feed.changes)
        assert (again.commit, again.key, again.root, again.count) == (
            feed.commit,
            feed.key,
            feed.root,
            feed.count,
        )
        assert again.schema.equals(feed.schema, check_metadata=True)
        assert again.schema_json == SCHEMA_JSON
        assert (again.part and again.part.indices) == (feed.part and feed.part.indices)


@pytest.mark.parametrize("data", [b"", b"x" * 100, to_ipc(change_set({}, {("DE", 1): {}}))[:-400]])
def test_what_is_no_feed_is_refused(data):
    with pytest.raises(Unverified):
        from_ipc(data)
    with pytest.raises(Unverified):
        from_json_lines([data.decode("latin-1")])


def test_a_part_is_not_divided_again_and_keys_are_needed_for_ranges():
    feed = change_set(random_state(5), random_state(5))
    with pytest.raises(Invalid, match="part"):
        feed.select([0]).select([0])
    with pytest.raises(Invalid, match="no key"):
        change_set({}, random_state(3), key=()).between(("DE",))
    with pytest.raises(LakeError, match="cannot be a key"):
        change_set({}, random_state(3), key=("ratio",))
