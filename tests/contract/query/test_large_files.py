"""Files too large to be read whole: by ranges that arrive while others are decoded, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

from catalog.core.errors import NotFound
from catalog.lake import Lake
from catalog.query.scan import parquet_objects, relations
from catalog.tables import file_writer
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on
from tests.worlds.query import rows_of

ROWS, GROUP_ROWS = 20_000, 1_000


@pytest.fixture(scope="module")
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as made:
        yield made


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "ROW_GROUP_ROWS", GROUP_ROWS)
    monkeypatch.setattr(parquet_objects, "MAX_WHOLE_BYTES", 0)
    monkeypatch.setattr(parquet_objects, "TAIL_BYTES", 64 << 10)
    monkeypatch.setattr(parquet_objects, "MAX_GAP_BYTES", 0)
    monkeypatch.setattr(relations, "FILTERED_ROWS", 0)


@pytest.fixture
def rows() -> pa.Table:
    """Ids in no order, a tenth of the stations missing, noise that does not compress."""
    rng = np.random.default_rng(11)
    return pa.table(
        {
            "id": pa.array(rng.permutation(ROWS)),
            "station": pa.array([None if at % 10 == 0 else f"s{at % 7}" for at in range(ROWS)]),
            "noise": pa.array(rng.random(ROWS)),
        }
    )


@pytest.fixture
def name(lake: Lake, rows: pa.Table) -> str:
    """A table of one file of twenty row groups."""
    name = f"db{uuid4().hex[:8]}.tides"
    lake.tables.create(name, rows.schema, mode="mor")
    lake.tables.insert(name, rows)
    return name


def test_rows_of_many_row_groups_come_in_the_files_order(lake: Lake, name: str, rows: pa.Table) -> None:
    gone = set(range(0, 1500, 3))
    lake.tables.delete(name, "id IN (" + ", ".join(map(str, gone)) + ")")
    lake.tables.alter(name, rename={"station": "place"})
    held = rows.to_pylist()
    left = [(row["id"], row["station"], row["noise"]) for row in held if row["id"] not in gone]
    expected = {
        "": left,
        "WHERE place = 's3'": [row for row in left if row[1] == "s3"],
        "WHERE place IS NULL AND id < 9000": [row for row in left if row[1] is None and row[0] < 9000],
        "WHERE place IN ('s1', 's2') OR id = 17": [row for row in left if row[1] in ("s1", "s2") or row[0] == 17],
        "WHERE id > 12 AND noise < 0.25": [row for row in left if row[0] > 12 and row[2] < 0.25],
        "WHERE id < 0": [],
    }
    for where, wanted in expected.items():
        answer = lake.queries.run(f"SELECT id, place, noise FROM {name} {where}", fresh=True)
        assert [tuple(row.values()) for row in answer.table().to_pylist()] == wanted, where


def test_a_file_that_goes_while_it_is_read_is_named(lake: Lake, name: str) -> None:
    assert rows_of(lake.queries.run(f"SELECT count(*) FROM {name} WHERE noise >= 0", fresh=True)) == [(ROWS,)]
    (task,) = lake.tables.plan_scan(name).plan_files()
    bucket, _, key = task.file.file_path.removeprefix("s3://").partition("/")
    lake.s3.delete_object(Bucket=bucket, Key=key)  # its footer is known: the row groups are asked for at once
    with pytest.raises(NotFound, match="is missing") as caught:
        lake.queries.run(f"SELECT sum(id) FROM {name} WHERE station = 's3'", fresh=True).table()
    assert caught.value.subject == task.file.file_path
