"""Rows in memory, as Arrow: converted to pandas, polars or Python values, and shown as a table in notebooks."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from strandline.display import as_html, as_text, size
from strandline.errors import Invalid, MissingDependency, Unavailable

RECEIPT = b"strandline:receipt"
"""The key of the receipt in the metadata of a result's Arrow schema."""


class Rows:
    """Rows of a response. All are in memory; no method sends a request.

    They implement Arrow's C stream interface: `polars.DataFrame(rows)`, `pyarrow.table(rows)`.

    >>> rows = lake.sql("select station, metres from silver.tides order by station")
    >>> rows
    Result: 2 rows x 2 columns, as of index ...
    station  metres
    -------  ------
    Brest    4.2
    Newlyn   3.1
    """

    def __init__(self, table: pa.Table) -> None:
        try:
            table.validate(full=True)  # forged offsets would make reads go beyond the buffers
        except pa.ArrowException as error:
            raise Unavailable(f"the response is not valid Arrow: {error}. Try again in a moment.") from None
        self._table = table

    @property
    def columns(self) -> list[str]:
        """The columns' names.

        >>> lake.sql("select station, metres from silver.tides").columns
        ['station', 'metres']
        """
        return list(self._table.column_names)

    @property
    def schema(self) -> pa.Schema:
        """The columns' names and Arrow types.

        >>> lake.sql("select metres from silver.tides").schema.field("metres").type
        DataType(double)
        """
        return self._table.schema

    def to_arrow(self) -> pa.Table:
        """The rows as a `pyarrow.Table`, without copying.

        >>> lake.sql("select max(metres) as highest from silver.tides").to_arrow()["highest"][0].as_py()
        4.2
        """
        return self._table

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`. Needs pandas.

        Integers and booleans get pandas' nullable types (`Int64`, `boolean`): as floats, large integers next to a
        NULL would be rounded.

        >>> frame = lake.sql("select count(*) as n from silver.tides").to_pandas()
        >>> int(frame["n"].sum())
        2
        """
        pandas = _package("pandas", "to_pandas()")
        nullable = {
            kind: getattr(pandas, f"{name}Dtype")()
            for name, kind in (
                *((f"Int{bits}", getattr(pa, f"int{bits}")()) for bits in (8, 16, 32, 64)),
                *((f"UInt{bits}", getattr(pa, f"uint{bits}")()) for bits in (8, 16, 32, 64)),
                ("Boolean", pa.bool_()),
            )
        }
        return self._table.to_pandas(types_mapper=nullable.get)

    def to_polars(self) -> Any:
        """The rows as a `polars.DataFrame`. Needs polars.

        >>> lake.sql("select station from silver.tides").to_polars().height
        2
        """
        return _package("polars", "to_polars()").from_arrow(self._table)

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts of Python values. Invalid if two columns have the same name: a dict would drop one.

        >>> lake.sql("select station from silver.tides order by station").rows()
        [{'station': 'Brest'}, {'station': 'Newlyn'}]
        """
        return list(self)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = self._table.column_names
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            message = f"two columns are named {', '.join(duplicates)}, and a dict has each name once"
            raise Invalid(f"{message}: rename one with AS, or use to_arrow()")
        for batch in self._table.to_batches(max_chunksize=1024):
            yield from batch.to_pylist()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        stream: Any = self._table
        return stream.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return as_text(self._table, self._title())

    def _repr_html_(self) -> str:
        return as_html(self._table, self._title())

    def _title(self) -> str:
        return f"{type(self).__name__}: {size(self._table)}"


class Result(Rows):
    """The result of a query: rows, and the receipt that says which state of the lake they were read from.

    >>> result = lake.sql("select station from silver.tides where metres > $least", params={"least": 4})
    >>> result.rows()
    [{'station': 'Brest'}]
    """

    def __init__(self, table: pa.Table) -> None:
        metadata = dict(table.schema.metadata or {})
        receipt = metadata.pop(RECEIPT, None)
        try:
            self._receipt: dict[str, Any] | None = None if receipt is None else dict(json.loads(receipt))
        except (ValueError, TypeError) as error:
            raise Unavailable(f"the result's receipt cannot be read: {error}. Try again in a moment.") from None
        super().__init__(table.replace_schema_metadata(metadata or None))

    @property
    def receipt(self) -> dict[str, Any]:
        """Which state of the lake the rows were read from.

        `index` is the position in the timeline that all tables were read at (None if they were read `fresh`),
        `snapshots` the Iceberg snapshot of each table, `checkpoint_size` and `checkpoint_root` the signed checkpoint,
        `verified` whether every object was checked against it. A receipt is not a proof: `lake.prove` and
        `strandline.verify` are.

        >>> receipt = lake.sql("select * from silver.tides", verify=True).receipt
        >>> receipt["verified"], sorted(receipt["snapshots"])
        (True, ['silver.tides'])
        """
        if self._receipt is None:
            raise Invalid("the lake sent no receipt with this result: it runs an older version, which sends none")
        return dict(self._receipt)

    def _title(self) -> str:
        index = (self._receipt or {}).get("index")
        return super()._title() + ("" if index is None else f", as of index {index}")


def _package(name: str, method: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingDependency(f"{method} needs {name}: pip install {name}") from None
