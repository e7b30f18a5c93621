"""Which delete files apply to a data file: by path, partition, bounds and sequence number, as Iceberg specifies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.typedef import Record

from catalog.iceberg import PATH_ID, DeleteIndex, deleted_positions, live_rows, referenced_path


def entry(path: str, sequence: int, *, region: str = "eu", bounds: tuple[str, str] | None = None) -> ManifestEntry:
    file = DataFile.from_args(
        content=DataFileContent.DATA if bounds is None else DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(region),
        record_count=4,
        file_size_in_bytes=1,
        lower_bounds={PATH_ID: bounds[0].encode()} if bounds else {},
        upper_bounds={PATH_ID: bounds[1].encode()} if bounds else {},
    )
    file.spec_id = 0
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=1,
        sequence_number=sequence,
        file_sequence_number=1,
        data_file=file,
    )


DATA = entry("s3://b/m.parquet", 5)


def test_bounds_that_are_equal_name_one_data_file() -> None:
    own = entry("d", 5, bounds=("s3://b/m.parquet", "s3://b/m.parquet"))
    other = entry("e", 5, bounds=("s3://b/n.parquet", "s3://b/n.parquet"))
    index = DeleteIndex([own, other])
    assert referenced_path(own.data_file) == "s3://b/m.parquet"
    assert index.own(DATA) == (own,) and index.shared(DATA) == ()


@pytest.mark.parametrize(("sequence", "applies"), [(4, False), (5, True), (6, True)])
def test_a_delete_does_not_apply_to_newer_data(sequence: int, applies: bool) -> None:
    own = entry("d", sequence, bounds=("s3://b/m.parquet", "s3://b/m.parquet"))
    shared = entry("e", sequence, bounds=("s3://b/a", "s3://b/z"))
    index = DeleteIndex([own, shared])
    assert bool(index.own(DATA)) == bool(index.shared(DATA)) == applies


@pytest.mark.parametrize(
    ("bounds", "applies"),
    [(("s3://b/a", "s3://b/z"), True), (("s3://b/n", "s3://b/z"), False), (("s3://b/a", "s3://b/l"), False),
     (("s3://b/a", "s3://b/m.par"), True)],
    ids=["between", "below", "above", "truncated upper bound"],
)  # fmt: skip
def test_bounds_rule_out_a_shared_delete(bounds: tuple[str, str], applies: bool) -> None:
    assert bool(DeleteIndex([entry("d", 5, bounds=bounds)]).shared(DATA)) == applies


def test_a_shared_delete_applies_to_its_partition_only() -> None:
    assert not DeleteIndex([entry("d", 5, region="us", bounds=("s3://b/a", "s3://b/z"))]).shared(DATA)


def test_positions_of_several_delete_files_are_joined() -> None:
    positions = {"d": {"p": pa.chunked_array([[0], [2]])}, "e": {"p": pa.chunked_array([[2]])}, "f": {"q": None}}
    deletes = [entry(path, 5, bounds=("a", "z")) for path in positions]
    deleted = deleted_positions(deletes, "p", lambda file: positions[file.file_path])
    assert sorted(deleted) == [0, 2, 2]
    assert live_rows(4, deleted).tolist() == [False, True, False, True]
    assert live_rows(2, deleted_positions([], "p", lambda file: {})).all()
    assert deleted.dtype == np.int64
