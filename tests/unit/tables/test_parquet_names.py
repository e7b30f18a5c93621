"""Columns get the names of their file by position; slices and nulls keep their values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from catalog.tables.parquet_names import with_file_names

INNER = pa.struct([("a b", pa.int64()), ("c", pa.list_(pa.struct([("d e", pa.string())])))])
FILE_INNER = pa.struct([("a_x20b", pa.int64()), ("c", pa.list_(pa.struct([("d_x20e", pa.string())])))])
VALUES = [{"a b": 1, "c": [{"d e": "x"}, None]}, None, {"a b": None, "c": None}, {"a b": 4, "c": []}]


@pytest.mark.parametrize(
    ("kind", "file_kind", "values"),
    [
        (INNER, FILE_INNER, VALUES),
        (pa.list_(INNER), pa.list_(FILE_INNER), [VALUES, None, [], VALUES[1:]]),
        (pa.map_(pa.string(), INNER), pa.map_(pa.string(), FILE_INNER), [[("k", VALUES[0])], None, [], [("j", None)]]),
    ],
)
@pytest.mark.parametrize("part", [slice(0, 4), slice(1, 3), slice(2, 4), slice(0, 0)])
def test_values_stay_and_names_change(
    kind: pa.DataType, file_kind: pa.DataType, values: list[object], part: slice
) -> None:
    array = pa.array(values, kind)[part.start : part.stop]
    rows = pa.table({"v": pa.chunked_array([array, array], kind)})
    named = with_file_names(rows, pa.schema([("v", file_kind)]))
    named.validate(full=True)
    renamed = str(values[part] * 2).replace("a b", "a_x20b").replace("d e", "d_x20e")
    assert named.schema == pa.schema([("v", file_kind)]) and str(named["v"].to_pylist()) == renamed
