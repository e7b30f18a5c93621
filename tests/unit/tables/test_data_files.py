"""What a data file holds, and how a key is found in one: the quick way says what the slow one does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.tables.creation import as_schema
from catalog.tables.file_writer import SAMPLE_ROWS, encode
from catalog.tables.matching import KeyMatcher

COUNT = 3 * SAMPLE_ROWS


def test_values_that_hardly_come_twice_get_no_dictionary_and_others_do() -> None:
    numbers = np.arange(COUNT)
    few = pa.array(numbers % 7)
    made: dict[str, Any] = {
        "id": pa.array(numbers),
        "few": few,
        "struct": pa.StructArray.from_arrays([few], ["inner"]),
        "list": pa.ListArray.from_arrays(pa.array(np.arange(COUNT + 1), pa.int32()), few),
        "map": pa.MapArray.from_arrays(pa.array(np.arange(COUNT + 1), pa.int32()), few, few),
    }
    rows = pa.table(made)
    data, parquet = encode(rows, "zstd")
    group = parquet.row_group(0)
    coded = {
        group.column(n).path_in_schema: "RLE_DICTIONARY" in group.column(n).encodings
        for n in range(parquet.num_columns)
    }
    assert coded == {
        "id": False,
        "few": True,
        "struct.inner": True,
        "list.list.element": True,
        "map.key_value.key": True,
        "map.key_value.value": True,
    }
    assert pq.read_table(pa.BufferReader(data)).equals(rows)


@pytest.mark.parametrize("far", [3, 2**40, -(2**62), None], ids=["close", "far", "farther", "null"])
@pytest.mark.parametrize("stored", [[], [None, 4, 2, 9, 5, 7, -1], [4, 2, 9, 5, 7, -1, 4, 2**62]], ids=len)
def test_keys_are_found_wherever_they_lie(far: int | None, stored: list[int | None]) -> None:
    version: Any = SimpleNamespace(schema=as_schema({"id": "long"}), metadata=SimpleNamespace(specs=dict))
    keys = [5, 4, far, 5]
    question = KeyMatcher(version, pa.table({"id": keys}), ["id"])
    positions = question.positions(pa.table({"id": pa.array(stored, pa.int64())}))
    assert positions.tolist() == [position for position, value in enumerate(stored) if value in keys]
