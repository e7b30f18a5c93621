"""A state map is the verifiable map of its rows: whatever its history, and however its pages are cut."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.changes import state_map
from catalog.changes.state_map import DuplicateKey, OtherRows, StateMap, StateMaps
from catalog.core.errors import Unverified
from catalog.merkle.map_verify import verify_absence, verify_value
from catalog.merkle.prefix_map import PrefixMap

SECRET = sha256(b"secret").digest()
NOTHING = bytes(32)


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_map, "MOST", 4)
    monkeypatch.setattr(state_map, "FEWEST", 1)


def digest(number: int) -> bytes:
    return sha256(str(number).encode()).digest()


def key(number: int) -> bytes:
    """Some keys differ only in a late bit, so that their paths are long."""
    if number % 7 == 1:
        return digest(0)[:30] + digest(number)[:2]
    return bytes(2) + digest(number)[2:] if number % 7 == 2 else digest(number)


def value(at: bytes, row: bytes) -> bytes:
    return sha256(SECRET + at + row).digest() + row


def block(records: Sequence[bytes]) -> Any:
    return np.frombuffer(b"".join(records), np.uint8).reshape(-1, 97)


def array(hashes: Sequence[bytes]) -> Any:
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, 32)


class Stored:
    """A store of pages, and the rows that the map in it should have."""

    def __init__(self) -> None:
        self.pages = dict[bytes, bytes]()
        self.rows = dict[bytes, bytes]()
        self.state = StateMap()

    def maps(self) -> StateMaps:
        return StateMaps(SECRET, lambda hashes: [self.pages.get(hash_, b"") for hash_ in hashes])

    def commit(self, writes: dict[int, int | None]) -> None:
        records = list[bytes]()
        for number, new in writes.items():
            at, old = key(number), self.rows.get(key(number))
            if new is None:
                if old is not None:
                    records.append(b"D" + at + self.rows.pop(at) + NOTHING)
                continue
            row = digest(new)
            if row != old:
                records.append((b"I" + at + NOTHING if old is None else b"U" + at + old) + row)
                self.rows[at] = row
        maps = self.maps()
        self.state = maps.updated(self.state, block(records))
        self.pages |= maps.nodes


histories = st.lists(
    st.dictionaries(st.integers(0, 60), st.none() | st.integers(0, 9), max_size=40), min_size=1, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(histories, st.lists(st.integers(0, 90), min_size=1, max_size=8))
def test_the_root_and_every_proof_are_those_of_the_map_of_its_rows(
    history: list[dict[int, int | None]], asked: list[int]
) -> None:
    stored = Stored()
    for writes in history:
        stored.commit(writes)
        plain = PrefixMap({at: value(at, row) for at, row in stored.rows.items()})
        assert (stored.state.root, stored.state.count) == (plain.root, len(stored.rows))
        for number in asked:
            found, proof = stored.maps().prove(stored.state, key(number))
            assert proof == plain.prove(key(number))
            if (row := stored.rows.get(key(number))) is None:
                assert found is None
                verify_absence(key(number), proof.siblings, proof.other, stored.state.root)
            else:
                assert found == value(key(number), row)
                verify_value(key(number), found, proof.siblings, stored.state.root)


@settings(max_examples=40, deadline=None)
@given(histories)
def test_the_root_does_not_depend_on_history_and_old_states_stay_provable(
    history: list[dict[int, int | None]],
) -> None:
    stored, past = Stored(), list[tuple[StateMap, dict[bytes, bytes]]]()
    for writes in history:
        stored.commit(writes)
        past.append((stored.state, dict(stored.rows)))
    for state, rows in past:
        built = StateMaps(SECRET, lambda _: []).build(array(list(rows)), array(list(rows.values())))
        assert (built.root, built.count) == (state.root, state.count)
        assert {entry.tobytes() for entry in stored.maps().rows(state).keys} == set(rows)
        for at, row in list(rows.items())[:3]:
            assert stored.maps().prove(state, at)[0] == value(at, row)


def test_rows_and_changes_that_do_not_fit_are_refused() -> None:
    stored = Stored()
    stored.commit(dict.fromkeys(range(30), 1))
    for record, error in (
        (b"I" + key(3) + NOTHING + digest(2), DuplicateKey),
        (b"U" + key(3) + digest(2) + digest(4), OtherRows),
        (b"D" + key(3) + digest(2) + NOTHING, OtherRows),
        (b"D" + key(77) + digest(1) + NOTHING, OtherRows),
    ):
        with pytest.raises(error):
            stored.maps().updated(stored.state, block([record]))
    with pytest.raises(DuplicateKey):
        stored.maps().build(array([key(1), key(2), key(1)]), array([digest(1)] * 3))
    twice = [b"D" + key(3) + digest(1) + NOTHING, b"I" + key(3) + NOTHING + digest(1)]
    with pytest.raises(DuplicateKey):
        stored.maps().updated(stored.state, block(twice))


def test_a_page_that_is_gone_is_said_so() -> None:
    stored = Stored()
    stored.commit(dict.fromkeys(range(30), 1))
    stored.pages.clear()
    with pytest.raises(Unverified, match="lacks the page"):
        stored.maps().prove(stored.state, key(1))


def test_another_secret_gives_another_root() -> None:
    keys, rows = array([key(1), key(2)]), array([digest(1), digest(2)])
    roots = {StateMaps(secret, lambda _: []).build(keys, rows).root for secret in (SECRET, NOTHING)}
    assert len(roots) == 2
