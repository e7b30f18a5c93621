"""Columns of few words, as Parquet has them: each word once, and a code for each row. Rows are chosen by code, and only
those that stay are spelled out. That takes a third of the time of reading the words, and filtering them, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.query.predicates import Predicate, row_filter

MOST_BYTES = 2
"""A value of such a column takes less in its file."""


def columns_of_few_words(footer: pq.FileMetaData, physical: pa.Schema, names: Sequence[str]) -> list[str]:
    """Which of the columns are text whose words come again and again, in every row group."""
    texts = [name for name in names if physical.field(name).type in (pa.string(), pa.large_string())]
    places = {footer.schema.column(at).path: at for at in range(footer.num_columns)} if texts else {}
    return [name for name in texts if _has_few(footer, places[name])]


def _has_few(footer: pq.FileMetaData, column: int) -> bool:
    chunks = [footer.row_group(group).column(column) for group in range(footer.num_row_groups)]
    size, values = sum(one.total_uncompressed_size for one in chunks), sum(one.num_values for one in chunks)
    return size < MOST_BYTES * values and all(one.has_dictionary_page for one in chunks)


def spelled(table: pa.Table) -> pa.Table:
    """With words in place of their codes."""
    for name in _coded(table):
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.string()))
    return table


def filtered(table: pa.Table, predicate: Predicate) -> pa.Table:
    """The rows that the predicate may be true for (see `row_filter`), spelled out."""
    codes, words = table.unify_dictionaries(), dict[str, Any]()
    for name in _coded(table):
        chunks: list[Any] = codes[name].chunks
        if chunks:
            words[name] = chunks[0].dictionary.cast(pa.string())  # the same in all of them
            numbers = pa.chunked_array([chunk.indices for chunk in chunks])
            codes = codes.set_column(codes.column_names.index(name), name, numbers)
    expression = row_filter(predicate, codes.schema, words)
    if expression is None:
        return spelled(table)
    kept = codes.filter(expression)
    for name, values in words.items():
        kept = kept.set_column(kept.column_names.index(name), name, values.take(kept[name]))
    return spelled(kept)


def _coded(table: pa.Table) -> list[str]:
    return [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
