"""A proven answer: every row of some keys at a point of the timeline, and the proof that there is no other of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from catalog.changes import ExpectedRows, KeySet, RowProof
from catalog.changes.state_proof import Fork, OtherLeaf, Place, ShownRow
from catalog.core.errors import Invalid, Unverified
from infra.local.server import ApiServer
from tests.contract.changes.test_row_proofs import fresh, made
from tests.worlds.changes import World, make_world


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(server, monkeypatch)
    yield made
    made.close()


def verified(world: World, proof: RowProof, name: str, asked: KeySet, index: int) -> list[dict[str, Any] | None]:
    expected = ExpectedRows(name, asked.keys(), index, ranged=asked.ranged)
    found = RowProof.read(proof.write()).verify_all([world.signer.verifier_key], None, expected)
    return [row.values for row in found.rows if row.exists]


def test_an_answer_has_every_row_of_its_keys_and_no_other(world: World) -> None:
    name = made(world, count=200)
    world.lake.tables.delete(name, "id = 120")
    lake = fresh(world)
    asked = KeySet({}, {"id": (100, 250)})
    proof = lake.prove_answer(name, asked)
    assert verified(world, proof, name, asked, 2) == [{"id": at, "v": "x"} for at in range(100, 200) if at != 120]
    before = lake.prove_answer(name, asked, 1)
    assert len(verified(world, before, name, asked, 1)) == 100
    listed = KeySet({"id": [7, "9", 120, 7777]})
    assert [row["id"] for row in verified(world, lake.prove_answer(name, listed), name, listed, 2) if row] == [7, 9]
    hidden = lake.prove_answer(name, listed, values=False)
    assert verified(world, hidden, name, listed, 2) == [None, None]
    for wrong in (KeySet({}, {"id": (99, 250)}), KeySet({}, {"id": (101, 250)}), listed):
        with pytest.raises(Unverified):
            verified(world, proof, name, wrong, 2)


def without_a_row(place: Place) -> Iterator[Place]:
    """The place with one row less, in every way that a server could try."""
    if isinstance(place.end, Fork):
        for side in ("left", "right"):
            for changed in without_a_row(getattr(place.end, side)):
                yield replace(place, end=replace(place.end, **{side: changed}))
        yield place.end.left
        yield replace(place, end=replace(place.end, left=Place((), None)))
    elif isinstance(place.end, ShownRow):
        yield replace(place, end=None)
        yield replace(place, end=OtherLeaf(bytes(32), place.end.commitment))


def test_an_answer_that_lacks_a_row_is_refused(world: World) -> None:
    name = made(world)
    lake = fresh(world)
    asked = KeySet({}, {"id": (0, 30)})
    proof = lake.prove_answer(name, asked)
    forgeries = [replace(proof, rows=rows) for rows in without_a_row(proof.rows)]
    assert len(forgeries) > 60
    for forged in forgeries:
        with pytest.raises(Unverified):
            verified(world, forged, name, asked, 1)


def test_what_cannot_be_complete_is_refused_with_what_to_do(world: World) -> None:
    name, priced = world.name("days"), world.name("priced")
    world.lake.tables.create(name, {"region": "string", "day": "date", "v": "long"}, key=["region", "day"])
    world.lake.tables.create(priced, {"price": "decimal(9, 2)", "v": "long"}, key=["price"])
    world.caught_up()
    rows = [{"region": region, "day": f"2026-03-{day:02}", "v": day} for region in "ab" for day in range(1, 29)]
    world.lake.tables.insert(name, rows)
    world.lake.tables.insert(priced, [{"price": "1.50", "v": 1}])
    lake = fresh(world)
    asked = KeySet({"region": ["a", "c"]}, {"day": ("2026-02-25", "2026-03-03")})
    proof = lake.prove_answer(name, asked)
    assert [row["v"] for row in verified(world, proof, name, asked, proof.index) if row] == [1, 2, 3]
    with pytest.raises(Invalid, match=r"the key of .* is \(region, day\), not \(day\)"):
        lake.prove_answer(name, KeySet({}, {"day": ("2026-03-01", "2026-03-03")}))
    for ranges, message in (
        ({"region": ("a", "c")}, "only ranges of whole numbers and of days"),
        ({"day": ("2026-03-01", 5)}, "from a number to a day"),
        ({"day": ("2026-03-05", "2026-03-01")}, "has no value"),
        ({"day": ("0001-01-01", "9999-12-31")}, "at most 1000 keys"),
        ({"day": ("2026-02-30", "2026-03-01")}, "is no day"),
    ):
        with pytest.raises(Invalid, match=message):
            lake.prove_answer(name, KeySet({} if "region" in ranges else {"region": ["a"]}, ranges))
    with pytest.raises(Invalid, match="region has values and a range"):
        lake.prove_answer(name, KeySet({"region": ["a"]}, {"region": (1, 2)}))
    # 1.50 is between 1 and 2: whole numbers are not all prices.
    with pytest.raises(Invalid, match=r"price cannot be complete: its type is decimal\(9, 2\)"):
        lake.prove_answer(priced, KeySet({}, {"price": (1, 2)}))
    cheap = KeySet({"price": [1, 2]})
    assert (
        verified(world, lake.prove_answer(priced, cheap), priced, cheap, lake.timeline.head().checkpoint.size - 1) == []
    )
    with pytest.raises(Unverified, match="cannot be complete"):
        verified(
            world,
            lake.prove_answer(priced, cheap),
            priced,
            KeySet({}, {"price": (1, 2)}),
            lake.timeline.head().checkpoint.size - 1,
        )
