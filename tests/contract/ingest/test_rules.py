"""A rule says what a table's files look like: columns, key, mode, and what becomes of columns it does not know."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from catalog.core.errors import Conflict, Invalid, NotFound
from catalog.ingest import commit, ingest
from catalog.ingest.rules import Rule, parse_rule
from infra.local.server import ApiServer
from tests.worlds.ingest import IngestWorld


@pytest.fixture
def world(server: ApiServer) -> IngestWorld:
    return IngestWorld.create(server)


@pytest.fixture(params=["held", "in pieces"])
def sized(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same behaviour for files that are held and for those that are read again and committed in pieces."""
    if request.param == "in pieces":
        monkeypatch.setattr(ingest, "HOLD_BYTES", 1)
        monkeypatch.setattr(commit, "PIECE_BYTES", 40)
    return request.param


def test_without_a_rule_what_was_found_is_recorded(world: IngestWorld) -> None:
    world.drop({"t/a.jsonl": b'{"id": 1, "tags": ["x"], "o": {"n": 1.5}}\n'})
    inferred = world.rules.get(world.name("t")).rule
    assert inferred.inferred and inferred.unknown == "reject" and inferred.key == ()
    assert inferred.columns is not None
    assert inferred.columns["id"] == "long" and inferred.columns["tags"]["element"] == "string"  # type: ignore[index]
    assert parse_rule(inferred.model_dump_json()) == inferred and inferred.iceberg_schema() is not None


def test_a_table_that_was_dropped_is_inferred_anew(world: IngestWorld) -> None:
    world.drop({"t/a.jsonl": b'{"id": 1}\n'})
    world.tables().drop(world.name("t"))
    (outcome,) = world.drop({"t/b.jsonl": b'{"name": "x"}\n'})
    assert outcome.status == "committed" and world.rows("t", "name") == [("x",)]
    assert world.rules.get(world.name("t")).rule.columns == {"name": "string"}


def test_a_rule_makes_the_table_it_describes(world: IngestWorld) -> None:
    columns: dict[str, Any] = {"id": "long", "at": "timestamptz", "price": "decimal(10, 2)"}
    world.rules.set(world.name("t"), Rule(columns=columns, key=("id",), mode="mor"))
    (outcome,) = world.drop({"t/a.csv": b"id,at,price\n1,2026-01-01T00:00:00Z,1.50\n"})
    assert outcome.status == "committed", outcome.error
    table = world.tables().load(world.name("t"))
    assert {f.name: str(f.field_type) for f in table.schema().fields} == columns
    assert table.properties["strandline.mode"] == "mor" and table.properties["strandline.key"] == "id"


def test_with_a_key_rows_replace_those_that_have_it(world: IngestWorld, sized: str) -> None:
    world.rules.set(world.name("t"), Rule(key=("id",)))
    world.drop({"t/a.jsonl": b'{"id": 1, "v": "a"}\n{"id": 2, "v": "a"}\n{"id": 3, "v": "a"}\n'})
    world.drop({"t/b.jsonl": b'{"id": 2, "v": "b"}\n{"id": 4, "v": "b"}\n'})
    assert world.rows("t", "id", "v") == [(1, "a"), (2, "b"), (3, "a"), (4, "b")]
    again = world.drop({"t/c.jsonl": b'{"id": 1, "v": "a"}\n{"id": 2, "v": "a"}\n{"id": 3, "v": "a"}\n'})
    assert again[0].status == "committed", "another file, whatever its bytes"
    assert world.rows("t", "id", "v") == [(1, "a"), (2, "a"), (3, "a"), (4, "b")]


def test_of_two_files_in_one_batch_the_later_ones_row_stays(world: IngestWorld) -> None:
    world.rules.set(world.name("t"), Rule(key=("id",)))
    files = {f"t/{n}.jsonl": b'{"id": 1, "v": %d}\n{"id": 1%d, "v": 0}\n' % (n, n) for n in range(3)}
    assert {outcome.status for outcome in world.drop(files)} == {"committed"}
    assert world.rows("t", "id", "v") == [(1, 2), (10, 0), (11, 0), (12, 0)]


@pytest.mark.parametrize(
    ("body", "position", "reason"),
    [
        (b'{"id": 1}\n{"id": 2}\n{"id": 1}\n', {"row": 2}, "same key"),
        (b'{"id": 1, "v": 1}\n{"v": 2}\n', {"row": 1, "column": "id"}, "required"),
    ],
)
def test_a_key_that_is_doubled_or_missing_is_refused(
    world: IngestWorld, sized: str, body: bytes, position: dict[str, Any], reason: str
) -> None:
    world.rules.set(world.name("t"), Rule(columns={"id": "long", "v": "long"}, key=("id",)))
    (outcome,) = world.drop({"t/a.jsonl": body})
    assert outcome.status == "quarantined" and outcome.error is not None
    assert reason in outcome.error.message and outcome.error.position == position  # type: ignore[attr-defined]
    assert world.rows("t", "id") == []


def test_a_table_with_a_key_of_its_own_needs_no_rule_to_replace(world: IngestWorld) -> None:
    world.tables().create(world.name("t"), {"id": "long", "v": "string"}, key=["id"])
    world.drop({"t/a.jsonl": b'{"id": 1, "v": "a"}\n'})
    world.drop({"t/b.jsonl": b'{"id": 1, "v": "b"}\n'})
    assert world.rows("t", "id", "v") == [(1, "b")]
    assert world.rules.get(world.name("t")).rule.key == ("id",)


def test_unknown_columns_are_refused_left_out_or_added(world: IngestWorld, sized: str) -> None:
    body = b'{"id": 2, "new": "x", "more": {"n": 1}, "nothing": null}\n{"id": 3}\n'
    for unknown in ("reject", "ignore", "evolve"):
        world.rules.set(world.name(unknown), Rule(columns={"id": "long"}, unknown=unknown))  # type: ignore[arg-type]
        world.drop({f"{unknown}/a.jsonl": b'{"id": 1}\n'})
        (outcome,) = world.drop({f"{unknown}/b.jsonl": body})
        assert outcome.status == ("quarantined" if unknown == "reject" else "committed"), outcome.error
    assert world.rows("reject", "id") == [(1,)]
    assert world.rows("ignore", "id") == [(1,), (2,), (3,)]
    assert world.rows("evolve", "id", "new", "more") == [(1, None, None), (2, "x", {"n": 1}), (3, None, None)]
    names = [field.name for field in world.tables().load(world.name("evolve")).schema().fields]
    assert names == ["id", "new", "more"], "a column without a value is not added: its type is not known"


def test_a_csv_column_that_is_added_gets_its_type_from_all_of_its_values(world: IngestWorld) -> None:
    world.rules.set(world.name("t"), Rule(columns={"id": "long"}, unknown="evolve"))
    outcomes = world.drop({"t/a.csv": b"id,n,code\n1,5,7\n", "t/b.csv": b"id,code\n2,x\n"})
    assert {outcome.status for outcome in outcomes} == {"committed"}
    assert world.rows("t", "id", "n", "code") == [(1, 5, "7"), (2, None, "x")]


def test_a_file_with_none_of_the_columns_is_not_made_rows_of_nothing(world: IngestWorld) -> None:
    world.rules.set(world.name("t"), Rule(columns={"id": "long"}, unknown="ignore"))
    (outcome,) = world.drop({"t/a.jsonl": b'{"ID": 2}\n'})
    assert outcome.status == "quarantined" and "in none of the columns" in str(outcome.error)


def test_new_columns_that_clash_refuse_the_later_file_only(world: IngestWorld) -> None:
    world.rules.set(world.name("t"), Rule(columns={"id": "long"}, unknown="evolve"))
    first, second = world.drop({"t/a.jsonl": b'{"id": 1, "n": 5}\n', "t/b.jsonl": b'{"id": 2, "n": "five"}\n'})
    assert (first.status, second.status) == ("committed", "quarantined")
    assert second.error is not None and second.error.position["column"] == "n"  # type: ignore[attr-defined]


def test_a_rule_changes_by_compare_and_swap(world: IngestWorld) -> None:
    rules, name = world.rules, world.name("t")
    first = rules.set(name, Rule(unknown="ignore"))
    with pytest.raises(Conflict):
        rules.set(name, Rule())
    second = rules.set(name, Rule(unknown="evolve"), tag=first.tag)
    with pytest.raises(Conflict, match="changed meanwhile"):
        rules.set(name, Rule(), tag=first.tag)
    with pytest.raises(Conflict):
        rules.remove(name, tag=first.tag)
    assert rules.get(name) == second and rules.all(world.namespace) == [second]
    assert rules.replace(name, Rule()).rule == Rule()
    rules.remove(name)
    assert rules.all(world.namespace) == []
    with pytest.raises(NotFound):
        rules.remove(name)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (Rule(columns={"id": "number"}), "not an Iceberg type"),
        (Rule(columns={"id": "long"}, key=("di",)), "'di' is not in the schema"),
        (Rule(columns={"id": "double"}, key=("id",)), "another key"),
        (Rule(columns={"there": "string"}), "there"),
        (Rule(columns={"else": "long"}), "no column 'else'"),
        (Rule(key=("else",)), "'else' is not in the schema"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_when_it_is_set(world: IngestWorld, rule: Rule, reason: str) -> None:
    world.tables().create(world.name("t"), {"there": "long"})
    with pytest.raises(Invalid, match=reason):
        world.rules.set(world.name("t"), rule)


def test_what_is_no_rule_says_all_that_is_wrong() -> None:
    with pytest.raises(Invalid) as caught:
        parse_rule({"unknown": "perhaps", "mode": "slow", "colour": 1})
    assert all(word in caught.value.message for word in ("unknown", "mode", "colour"))


def test_types_come_from_all_rows_of_the_first_files_and_then_the_table_decides(world: IngestWorld, sized: str) -> None:
    """The second file of the batch shows the order of day and month; the rule keeps it for files that do not."""
    first = b"id,day,price,code\n1,01/02/2026,12.50,007\n"
    second = b"id,day,price,code\n2,13/02/2026,3.00,1\n"
    outcomes = world.drop({"t/a.csv": first, "t/b.csv": second})
    assert [outcome.status for outcome in outcomes] == ["committed"] * 2, [outcome.error for outcome in outcomes]
    rule = world.rules.get(world.name("t")).rule
    assert rule.columns == {"id": "long", "day": "date", "price": "decimal(18, 2)", "code": "string"}
    assert rule.inferred and rule.csv.dates == "dmy"
    (third,) = world.drop({"t/c.csv": b"id,day,price,code\n3,03/04/2026,1,x\n"})
    assert third.status == "committed", third.error
    (refused,) = world.drop({"t/d.csv": b"id,day,price,code\n4,04/13/2026,1,x\n"})
    assert refused.status == "quarantined" and refused.error is not None
    assert refused.error.position == {"row": 2, "column": "day"}  # type: ignore[attr-defined]
    days = [(1, date(2026, 2, 1)), (2, date(2026, 2, 13)), (3, date(2026, 4, 3))]
    assert world.rows("t", "id", "day") == days
    assert world.rows("t", "price") == [(Decimal("1.00"),), (Decimal("12.50"),), (Decimal("3.00"),)]


def test_the_order_of_dates_is_noted_in_a_rule_that_was_set(world: IngestWorld) -> None:
    world.rules.set(world.name("t"), Rule(key=("id",)))
    world.drop({"t/a.csv": b"id,day\n1,31/01/2026\n"})
    world.drop({"t/b.csv": b"id,day\n1,02/01/2026\n"})
    rule = world.rules.get(world.name("t")).rule
    assert (rule.key, rule.csv.dates, rule.inferred) == (("id",), "dmy", False)
    assert world.rows("t", "id", "day") == [(1, date(2026, 1, 2))]
