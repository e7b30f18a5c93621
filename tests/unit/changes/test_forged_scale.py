"""A feed whose schema has a type that Arrow takes and no table has."""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import Decimal

import pyarrow as pa
import pytest

from catalog.changes import ChangeSet, CommitHeader, from_json_lines, to_json_lines
from catalog.changes.pairing import pair
from catalog.core.errors import Unverified
from tests.worlds.forged_log import NAME, UUID


@pytest.mark.parametrize("scale", [419_430_402, 2**31 - 1, -(2**31), -1, 10])
def test_a_decimal_of_a_scale_that_no_table_has_is_refused_before_a_value_is_read(scale: int) -> None:
    """Found by make forge: pyarrow ended the process, which no verifier may let a stranger do."""
    honest = pa.schema([pa.field("amount", pa.decimal128(9, 2), metadata={"PARQUET:field_id": "1"})])
    row = {"amount": Decimal("0.01")}
    changes = pair(pa.Table.from_pylist([], honest), pa.Table.from_pylist([row], honest), (), honest)
    lines = list(to_json_lines(ChangeSet.of(CommitHeader(NAME, UUID, 7, None, 0), honest, (), changes)))
    forged = pa.schema([pa.field("amount", pa.decimal128(9, scale), metadata={"PARQUET:field_id": "1"})])
    head = json.loads(lines[0]) | {"schema": b64encode(forged.serialize().to_pybytes()).decode()}
    from_json_lines(lines)
    with pytest.raises(Unverified, match="which no table has"):
        from_json_lines([json.dumps(head), *lines[1:]])
