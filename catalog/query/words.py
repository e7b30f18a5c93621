"""Columns of few words, as Parquet has them: each word once, and a code for each row. Rows are chosen by code, and only
those that stay are spelled out. That takes a third of the time of reading the words, and filtering them, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.query.predicates import Predicate, row_mask

MOST_BYTES = 2
"""A value of such a column takes less in its file."""
MOST_KEPT = 0.5
"""Where more rows stay, taking out the others costs more than the engine spends on them."""


def columns_of_few_words(footer: pq.FileMetaData, physical: pa.Schema, names: Sequence[str]) -> list[str]:
    """Which of the columns are text whose words come again and again, in every row group."""
    texts = [name for name in names if physical.field(name).type in (pa.string(), pa.large_string())]
    places = {footer.schema.column(at).path: at for at in range(footer.num_columns)} if texts else {}
    return [name for name in texts if _has_few(footer, places[name])]


def _has_few(footer: pq.FileMetaData, column: int) -> bool:
    chunks = [footer.row_group(group).column(column) for group in range(footer.num_row_groups)]
    size, values = sum(one.total_uncompressed_size for one in chunks), sum(one.num_values for one in chunks)
    return size < MOST_BYTES * values and all(one.has_dictionary_page for one in chunks)


def spelled(rows: pa.RecordBatch) -> pa.RecordBatch:
    """With words in place of their codes."""
    columns = [one.cast(pa.string()) if pa.types.is_dictionary(one.type) else one for one in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def filtered(rows: pa.RecordBatch, predicate: Predicate) -> pa.RecordBatch:
    """The rows that the predicate may be true for (see `row_mask`), spelled out; all of them if most are."""
    mask = row_mask(predicate, rows)
    if mask is None or mask.true_count > MOST_KEPT * rows.num_rows:
        return spelled(rows)
    return spelled(rows.filter(mask))
