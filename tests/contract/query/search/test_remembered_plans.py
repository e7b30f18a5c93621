"""A remembered plan of a search is used only for what it was made for: values, limits, caller, rules, snapshots."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from catalog.query.run.engine_limits import EngineLimits
from catalog.query.run.queries import AccessRules, Queries
from catalog.timeline.sequencer.vector_events import vector_table_name
from tests.worlds.lake import sequence
from tests.worlds.query import rows_of
from tests.worlds.search import TABLE, WORDS, EngineOnly, World, parts_of


def test_a_remembered_plan_is_of_these_values_and_limits(world: World) -> None:
    sql = f"SELECT id, stars FROM {TABLE} WHERE stars > $n ORDER BY embedding <-> $q LIMIT $k OFFSET $o"
    for n, k, o in [(1, 5, 0), (3, 5, 0), (3, 2, 0), (3, 2, 1), (2.5, 2, 1), (1, True, 0), (1, 1, False), (1, 5, 0)]:
        world.same(sql, parameters={"q": "roses", "n": n, "k": k, "o": o})
        world.same(sql, parameters={"q": "storm", "n": n, "k": k, "o": o}, limits=EngineLimits(100 << 20, 7.0))
        world.same(sql, parameters={"q": "types", "n": n, "k": k, "o": o}, limit_bytes=10)


def test_a_remembered_plan_is_of_this_caller_and_of_his_rules(world: World) -> None:
    """One statement, again and again, by those who see all, some rows, some columns: nobody gets another's plan."""

    @dataclass(frozen=True)
    class Person:
        name: str
        roles: tuple[str, ...] = ("reader",)

        def readable(self, tables: Any) -> list[str]:
            return list(tables)

    seen: dict[str, AccessRules | None] = {
        "all": None,
        "some": AccessRules(row_filter="stars = 3"),
        "masked": AccessRules(columns={"word": "'-'"}),
        "plain": AccessRules(),
    }
    rules = {"rules": lambda caller, table: seen[caller.name]}
    world = replace(
        world, direct=Queries(**parts_of(world.lake), **rules), engine=EngineOnly(**parts_of(world.lake), **rules)
    )
    sql = f"SELECT id, stars, word FROM {TABLE} ORDER BY embedding <-> $q LIMIT 20"
    for words in ("tide", "onion", "roses"):
        for name in ("all", "some", "masked", "plain", "all"):
            rows, alone = world.same(sql, parameters={"q": words}, caller=Person(name))
            assert isinstance(rows, pa.Table) and len(rows) == 20
            # The second time the very same answer is at hand, without either way.
            assert alone == (name == "all")
            assert name != "some" or set(rows["stars"].to_pylist()) == {3}
            assert name != "masked" or set(rows["word"].to_pylist()) == {"-"}
    seen["all"] = AccessRules(row_filter="stars = 5", columns={"word": None})
    assert "no column word" in str(world.same(sql, parameters={"q": "soup"}, caller=Person("all"))[0])
    seen["all"] = AccessRules(columns={"text": "'-'"})
    assert "masked" in str(world.same(sql, parameters={"q": "soup"}, caller=Person("all"))[0])


def test_a_remembered_plan_is_of_these_snapshots(world: World) -> None:
    """The table and its vector table move on; what was planned before is not what is asked now."""
    lake, name, id_ = world.lake, "silver.turning", "silver.turning.text"
    world = replace(world, direct=Queries(**parts_of(lake)), engine=EngineOnly(**parts_of(lake)))
    lake.tables.create(name, {"id": "long", "text": "string", "stars": "int"}, mode="mor", key=["id"])
    lake.tables.insert(name, [{"id": n, "text": f"{word} {n}", "stars": n % 3} for n, word in enumerate(WORDS)])
    lake.vectors.create(name, "text", columns=["stars"])
    first = sequence(lake, name, vector_table_name(id_))
    sql = f"SELECT id, stars FROM {name} WHERE stars < 2 ORDER BY embedding <-> $q LIMIT 4"

    def now(words: str, **options: Any) -> tuple[list[Any], bool]:
        outcome, alone = world.same(sql, parameters={"q": words}, **options)
        return rows_of(outcome), alone

    before, alone = now("tide")
    assert alone and len(before) == 4
    lake.tables.upsert(name, [{"id": before[0][0], "text": "tide again", "stars": 2}])
    sequence(lake, name)
    behind, alone = now("tide")
    assert not alone and before[0][0] not in {row[0] for row in behind}  # the vector table knows it with its old stars
    assert now("tide", as_of=first) == (before, True)
    versioned = f"SELECT o.id FROM {name} VERSION AS OF {first} o ORDER BY o.embedding <-> $q LIMIT 4"
    assert world.same(versioned, parameters={"q": "tide"})[1]
    lake.vectors.refresh(id_)
    sequence(lake, name, vector_table_name(id_))
    assert now("onion")[1]
    lake.tables.alter(name, rename={"stars": "points"})
    sequence(lake, name)
    assert "no column stars" in str(world.same(sql, parameters={"q": "soup"})[0])
    renamed = sql.replace("stars", "points")
    assert not world.same(renamed, parameters={"q": "soup"})[1]
    lake.tables.insert(name, [{"id": 100, "text": "garden soup", "points": 1}])
    lake.vectors.drop(id_)
    lake.vectors.create(name, "text", columns=["points"])
    sequence(lake, name, vector_table_name(id_))
    outcome, alone = world.same(renamed, parameters={"q": "soup"})
    assert alone, outcome
