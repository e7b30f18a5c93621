"""The medallion on Spark: mended tables are the tables made anew, whatever happened to the runs in between."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bench.pipeline_world import NotesWorld
from catalog.core.settings import Settings
from catalog.lake import Lake
from catalog.notes.layers import DERIVED, RAW_IMPORTS, RAW_NOTES, REJECTS
from infra.local.endpoint import Endpoint
from spark_jobs.inputs import INPUTS
from spark_jobs.job import Context, execute
from spark_jobs.medallion import JOB, MedallionArguments, medallion
from tests.spark.lakes import open_with, rows

pytestmark = pytest.mark.xdist_group("spark")

NOTES, EVENTS = 12, 6


@pytest.fixture
def lake(endpoint: Endpoint, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    return open_with(endpoint, settings, monkeypatch)


def run(spark: SparkSession, lake: Lake, **given: Any) -> dict[str, Any]:
    outcome = execute(JOB, MedallionArguments(**given), spark, lake)
    assert outcome.error is None, outcome.error
    return outcome.report


def everything(lake: Lake, prefix: str) -> dict[str, list[dict[str, Any]]]:
    return {spec.name: rows(lake, prefix + spec.name) for spec in (*DERIVED, REJECTS)}


def embedded(lake: Lake, prefix: str) -> set[tuple[str, str]]:
    """The notes in the vector table: a search with words for everything finds all of them."""
    matches = lake.vectors.search(f"{prefix}silver.processed_notes.text", "note", mode="vector", k=1000).to_pylist()
    assert all({"title", "quality"} <= row.keys() for row in matches)
    return {(row["note_id"], row["text"]) for row in matches}


def noted(lake: Lake, prefix: str) -> set[tuple[str, str]]:
    return {(row["note_id"], row["text"]) for row in rows(lake, prefix + "silver.processed_notes")}


class Killed(BaseException):
    """Nothing in the job may catch it."""


class Mortal(Context):
    """A job's context that dies right after its first commit."""

    def committed(self, table: str, snapshot_id: int | None, **said: Any) -> None:
        super().committed(table, snapshot_id, **said)
        raise Killed


def edit(lake: Lake, prefix: str, world: NotesWorld, chance: random.Random, version: int) -> None:
    """A few notes written anew, one taken away, one that is not to be had, and events, one of which is none."""
    table = prefix + RAW_NOTES.name
    numbers = chance.sample(range(NOTES + 4), 2)
    bad = {**world.note(0), "path": f"bad-{version}.md", "body": ""}
    lake.tables.insert(table, [*world.notes(numbers, version), bad])
    lake.tables.delete(table, where=f"path == '{world.path(chance.randrange(NOTES))}'")
    if version > 1:
        lake.tables.delete(table, where=f"path == 'bad-{version - 1}.md'")
    event = world.events(1)[0]
    happened = [{**event, "event_id": f"{action}-{version}", "action": action} for action in ("viewed", "cooked")]
    lake.tables.insert(prefix + RAW_IMPORTS.name, happened)


def test_mended_tables_are_the_tables_made_anew_also_when_runs_were_killed(
    spark: SparkSession, lake: Lake, namespace: str
) -> None:
    prefix, world, chance = f"{namespace}_", NotesWorld(NOTES, seed=3), random.Random(5)
    lake.tables.create(prefix + RAW_NOTES.name, RAW_NOTES.schema)  # as ingestion makes it
    lake.tables.create(prefix + RAW_IMPORTS.name, RAW_IMPORTS.schema)
    lake.tables.insert(prefix + RAW_NOTES.name, list(world.notes()))
    lake.tables.insert(prefix + RAW_IMPORTS.name, world.events(EVENTS))
    first = run(spark, lake, prefix=prefix, full=True)
    assert {how["how"] for how in first["result"].values()} == {"anew"}
    assert len(rows(lake, prefix + "silver.processed_notes")) == NOTES
    again = run(spark, lake, prefix=prefix)
    assert again["commits"] == [] and {how["how"] for how in again["result"].values()} == {"nothing new"}
    assert embedded(lake, prefix) == noted(lake, prefix)

    edit(lake, prefix, world, chance, version=1)
    killed = 0
    while killed < 40:  # each run dies at its first commit, until one has nothing left to commit
        context = Mortal(spark, lake, "medallion", f"run{killed}")
        try:
            medallion(context, MedallionArguments(prefix=prefix))
            break
        except Killed:
            killed += 1
        if killed == 4:  # while half of the tables are behind, everything moves again
            edit(lake, prefix, world, chance, version=2)
            lake.tables.alter(prefix + RAW_NOTES.name, add={"mood": "string"})
    assert killed > len(DERIVED) + 4
    mended = everything(lake, prefix)
    again = run(spark, lake, prefix=prefix)
    assert again["commits"] == [] and {how["how"] for how in again["result"].values()} == {"nothing new"}
    assert embedded(lake, prefix) == noted(lake, prefix)
    assert [row["table_name"] for row in mended["silver.rejects"]].count("silver.processed_notes") == 1
    assert "silver.user_events" in {row["table_name"] for row in mended["silver.rejects"]}

    made = run(spark, lake, prefix=prefix, full=True)
    assert {how["how"] for how in made["result"].values()} == {"anew"}
    anew = everything(lake, prefix)
    for name, found in mended.items():
        assert found == anew[name], name
    head = lake.tables.load(prefix + "gold.insights").current_snapshot()
    assert head is not None and head.summary is not None and "gold.note_metrics" in str(head.summary[INPUTS])


def test_an_orc_table_is_made_and_mended(spark: SparkSession, lake: Lake, namespace: str) -> None:
    prefix, world = f"{namespace}_", NotesWorld(NOTES, seed=4)
    chosen = {"prefix": prefix, "tables": ["processed_notes"], "file_format": "orc"}
    lake.tables.create(prefix + RAW_NOTES.name, RAW_NOTES.schema)
    lake.tables.insert(prefix + RAW_NOTES.name, list(world.notes(range(4))))
    run(spark, lake, **chosen)
    lake.tables.insert(prefix + RAW_NOTES.name, list(world.notes([0, 7], version=1)))
    lake.tables.delete(prefix + RAW_NOTES.name, where=f"path == '{world.path(2)}'")
    assert run(spark, lake, **chosen)["result"]["silver.processed_notes"]["how"] == "mended"
    table = prefix + "silver.processed_notes"
    mended = rows(lake, table)
    assert [row["note_id"] for row in mended] == sorted(world.path(number) for number in (0, 1, 3, 7))
    files = [task.file.file_path for task in lake.tables.load(table).scan().plan_files()]
    assert files and all(path.endswith(".orc") for path in files)
    run(spark, lake, **chosen, full=True)
    assert rows(lake, table) == mended
