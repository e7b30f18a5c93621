"""Dictionary-encoded text columns: filters rows by the dictionary's values, and decodes only those that remain. That
takes a third of the time of decoding every row and filtering then.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.query.plan.predicates import Predicate, row_mask

MAX_VALUE_BYTES = 2
"""A column is read dictionary-encoded if its values take fewer bytes each in the file."""
MAX_FILTERED_SHARE = 0.5
"""If a larger share of the rows remains, filtering costs more than the engine saves by it."""


def dictionary_columns(footer: pq.FileMetaData, physical: pa.Schema, names: Sequence[str]) -> list[str]:
    """Those of the columns that are text and dictionary-encoded with few distinct values in every row group."""
    texts = [name for name in names if physical.field(name).type in (pa.string(), pa.large_string())]
    numbers = {footer.schema.column(number).path: number for number in range(footer.num_columns)} if texts else {}
    return [name for name in texts if _is_small_dictionary(footer, numbers[name])]


def _is_small_dictionary(footer: pq.FileMetaData, column: int) -> bool:
    chunks = [footer.row_group(group).column(column) for group in range(footer.num_row_groups)]
    size, values = sum(chunk.total_uncompressed_size for chunk in chunks), sum(chunk.num_values for chunk in chunks)
    return size < MAX_VALUE_BYTES * values and all(chunk.has_dictionary_page for chunk in chunks)


def decode_dictionaries(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with dictionary-encoded columns decoded."""
    columns = [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def filtered(rows: pa.RecordBatch, predicate: Predicate) -> pa.RecordBatch:
    """The rows that might match the predicate (see `row_mask`), decoded; all rows if most might match."""
    mask = row_mask(predicate, rows)
    if mask is None or mask.true_count > MAX_FILTERED_SHARE * rows.num_rows:
        return decode_dictionaries(rows)
    return decode_dictionaries(rows.filter(mask))
