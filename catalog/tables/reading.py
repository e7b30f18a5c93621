"""A scan's rows batch by batch: what a caller with little memory reads instead of one Arrow table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files, schema_to_pyarrow
from pyiceberg.table import DataScan

from catalog.refusals import explained


def scan_schema(scan: DataScan) -> pa.Schema:
    """The columns that `scan_batches` gives."""
    return schema_to_pyarrow(scan.projection(), include_field_ids=False)


def scan_batches(scan: DataScan, name: str) -> Iterator[pa.RecordBatch]:
    """The rows of one file after another, as they are read: pyiceberg's own reader begins with all files at once.

    Memory: one row group and the positions deleted in one file. The order is the files', not the rows'.
    """
    left, target = scan.limit, scan_schema(scan)
    with explained(name):
        for task in scan.plan_files():
            if left is not None and left <= 0:
                return
            reader = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter, limit=left)
            deletes = _read_all_delete_files(scan.io, [task])
            for batch in reader._record_batches_from_scan_tasks_and_deletes([task], deletes):
                if batch.num_rows:
                    left = None if left is None else left - batch.num_rows
                    yield batch.cast(target)
