"""Row digests: 32 bytes that stand for a row, the same from Arrow and from Spark, whatever file it came from.

docs/row-digest.md states the encoding and what a digest does and does not depend on. Needs pyarrow only;
DataFusion, where installed, makes it several times quicker.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from catalog.changes.encoding import Rows, encode
from catalog.changes.hashing import Hashes, root, sha256_all
from catalog.errors import Invalid


def row_digests(rows: Rows) -> Hashes:
    """The digest of each row: the RFC 6962 leaf hash of its encoding, whose first byte is the leaf prefix.

    `rows` carries Iceberg field ids (see `conform`). About 0.4 microseconds a row of ten columns; memory is
    32 bytes a row and a few times one batch. Raises Invalid for rows that have no encoding.
    """
    return sha256_all(encode(rows), rows.num_rows)


def key_digests(rows: Rows, key: Sequence[str]) -> Hashes:
    """The digest of each row's key: of the row cut down to its key columns."""
    return row_digests(rows.select(list(key)))


def rows_root(rows: Rows) -> bytes:
    """The RFC 6962 root over the rows' digests, in the order given."""
    return root(row_digests(rows))


def conform(rows: Rows, schema: pa.Schema) -> pa.Table:
    """The rows as columns of a schema that carries field ids: matched by name, cast where types differ.

    For rows that lost their ids on the way (a query's result, a dict). Columns the schema does not know are
    left out, absent ones are NULL. Raises Invalid when a value does not fit.
    """
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    columns = [
        table.column(field.name) if field.name in table.schema.names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    try:
        return pa.table(columns, names=schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise Invalid(f"the rows do not fit the table's schema: {error}") from None


def check_key(schema: pa.Schema, key: Sequence[str]) -> None:
    """Key columns exist and have an order that every engine agrees on; Invalid otherwise, as in Iceberg itself."""
    for name in key:
        if name not in schema.names:
            raise Invalid(f"the key column {name!r} is not in the table's schema")
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            raise Invalid(f"column {name!r} of type {kind} cannot be a key: keys are neither nested nor floating")
