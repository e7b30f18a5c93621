"""The keys of rows to erase, in the types of their columns. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from catalog.core.errors import Invalid
from catalog.formats import cast_decimals
from catalog.tables import TableVersion


def typed_keys(version: TableVersion, key: Sequence[str], keys: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The keys with values of the columns' types. Text is accepted for any of them: a command line has nothing else."""
    columns = schema_to_pyarrow(version.schema.select(*key), include_field_ids=False)
    try:
        return [
            {
                name: _value(value, columns.field(name).type) if isinstance(value, str) else value
                for name, value in each.items()
            }
            for each in keys
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Invalid(f"the key is not one of {version.name}: {error}", subject=version.name) from None


def _value(text: str, type_: Any) -> Any:
    texts = pa.array([text])
    return (cast_decimals(texts, type_) if pa.types.is_decimal(type_) else texts.cast(type_))[0].as_py()


def with_ids(rows: pa.Table, version: TableVersion, key: Sequence[str]) -> pa.Table:
    return rows.cast(schema_to_pyarrow(version.schema.select(*key), include_field_ids=True))
