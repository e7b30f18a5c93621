"""The jobs' names, modules, schedules and plans agree; a digest of rows tells every difference. No session starts."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import SparkContext

from catalog.changes.multiset import RowsDigest
from catalog.query.spark.job_runs import ENTRY_POINT
from cli.job import CODE as CLI_CODE
from functions.starter import CODE
from infra.cost.estimate import runs_a_month
from infra.cost.workload import DAYS
from infra.stacks.jobs import SCHEDULES
from spark_jobs.compact import CompactArguments, _reorder, plan
from spark_jobs.java_lists import runs
from spark_jobs.job import parse
from spark_jobs.names import JOBS
from spark_jobs.rewriter import Task
from spark_jobs.session import ROOT
from spark_jobs.transform import TransformArguments

MIB = 1 << 20


@pytest.mark.parametrize("name", JOBS)
def test_every_job_is_a_module_that_can_be_started(name: str) -> None:
    module = importlib.import_module(f"spark_jobs.{name}")
    assert module.JOB.name == name
    assert 'if __name__ == "__main__":' in Path(str(module.__file__)).read_text()


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: str(schedule.job))
def test_every_schedule_starts_a_job_with_arguments_it_takes(schedule: Any) -> None:
    assert CODE == CLI_CODE == ENTRY_POINT.rpartition("/")[0] and (ROOT / "spark_jobs" / f"{schedule.job}.py").is_file()
    job = importlib.import_module(f"spark_jobs.{schedule.job}").JOB
    parse(job.arguments, ["--run-id", "6a1c-22", *schedule.arguments])
    # A rate would fire as soon as a cloud starts.
    assert schedule.cron.startswith("cron(")


def test_the_timeline_is_verified_every_day_and_every_object_every_week() -> None:
    verifying = {schedule.arguments: schedule for schedule in SCHEDULES if schedule.job == "verify"}
    assert verifying.keys() == {(), ("--deep",)}
    assert runs_a_month(verifying[()].cron) == DAYS
    assert runs_a_month(verifying["--deep",].cron) == DAYS / 7
    assert len({schedule.name for schedule in SCHEDULES}) == len(SCHEDULES)


def rows(values: list[int | None]) -> pa.Table:
    field = pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1"})
    return pa.Table.from_arrays([pa.array(values, pa.int64())], schema=pa.schema([field]))


VALUES = st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=12)


@given(VALUES, VALUES)
def test_digests_are_equal_exactly_for_the_same_rows_in_any_order(
    one: list[int | None], other: list[int | None]
) -> None:
    same = sorted(one, key=str) == sorted(other, key=str)
    assert (RowsDigest.of(rows(one)) == RowsDigest.of(rows(other))) is same
    assert (RowsDigest.of(rows(one)).hex == RowsDigest.of(rows(other)).hex) is same


@given(VALUES, VALUES)
def test_digests_of_parts_add_up(one: list[int | None], other: list[int | None]) -> None:
    whole = RowsDigest.of(rows([*one, *other]))
    assert RowsDigest.of(rows(one)) + RowsDigest.of(rows(other)) == whole
    assert whole + RowsDigest() == whole


def task(path: str, mib: int, partition: str = "p", deletes: tuple[str, ...] = ()) -> Task:
    return Task(0, path, mib * MIB, 10, deletes, partition)


def test_places_in_a_list_are_runs_of_neighbours() -> None:
    assert runs([7, 3, 4, 5, 9, 8, 0, 4]) == [(0, 1), (3, 6), (7, 10)] and runs([]) == []


class TestPlan:
    def chosen(self, *tasks: Task, **given: Any) -> list[set[str]]:
        return plan(tasks, CompactArguments(table="a.b", target_mb=100, **given))

    def test_only_partitions_that_need_it_are_read(self) -> None:
        alone, fine = task("alone", 10, "x"), task("fine", 100, "y")
        small = [task("s1", 10), task("s2", 20), task("big", 100)]
        assert self.chosen(alone, fine, *small) == [{"s1", "s2"}]

    def test_a_file_with_deletes_is_due_whatever_its_size(self) -> None:
        assert self.chosen(replace(task("dirty", 100), deletes=("d",)), task("clean", 100)) == [{"dirty"}]

    def test_sorting_takes_the_whole_partition(self) -> None:
        groups = self.chosen(task("a", 100), task("b", 100), strategy="sort", columns=["id"])
        assert groups == [{"a", "b"}]

    def test_a_group_is_no_larger_than_asked(self) -> None:
        files = [task(f"f{number}", 40) for number in range(6)]
        groups = self.chosen(*files, group_mb=90)
        assert [len(group) for group in groups] == [2, 2, 2] and set().union(*groups) == {file.path for file in files}


@pytest.mark.parametrize(
    "given",
    [
        {"sql": "SELECT 1", "module": "a:b"},
        {},
        {"sql": "SELECT 1", "mode": "merge"},
        {"sql": "SELECT 1", "key": ["id"]},
        {"sql": "SELECT 1", "inputs": ["a; DROP"]},
    ],
    ids=["both", "neither", "merge without key", "key without merge", "no table"],
)
def test_a_transform_that_contradicts_itself_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        TransformArguments(table="a.b", **given)


def test_the_arguments_of_a_sort_are_checked_before_a_session_starts() -> None:
    """As in the process that EMR starts: a column expression would need the session."""
    assert SparkContext._active_spark_context is None
    arguments = CompactArguments(table="a.b", strategy="sort", columns=["id desc", "at"])
    assert callable(_reorder(None, "a.b", arguments, ["id", "at"]))  # type: ignore[arg-type]
