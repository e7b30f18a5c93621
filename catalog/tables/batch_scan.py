"""A scan's rows batch by batch, for callers that cannot hold them as one Arrow table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import DataScan

from catalog.core.aws_errors import translate_aws_errors
from catalog.iceberg import scan_file_batches


def scan_schema(scan: DataScan) -> pa.Schema:
    """The Arrow schema of what `scan_batches` yields."""
    return schema_to_pyarrow(scan.projection(), include_field_ids=False)


def scan_batches(scan: DataScan, name: str) -> Iterator[pa.RecordBatch]:
    """Reads one file after the other; pyiceberg's own reader opens all files at once.

    Memory: one row group and the positions deleted in one file. Rows come in the order of the files.
    """
    remaining, target = scan.limit, scan_schema(scan)
    with translate_aws_errors(name):
        for task in scan.plan_files():
            if remaining is not None and remaining <= 0:
                return
            reader = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter, limit=remaining)
            for batch in scan_file_batches(reader, scan.io, task):
                if batch.num_rows:
                    remaining = None if remaining is None else remaining - batch.num_rows
                    yield batch.cast(target)
