"""Rows by their addresses: data file and position, as a query of one snapshot found them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from catalog.core.errors import Conflict, Internal, Invalid
from catalog.iceberg import FileReader, LiveFile, Positions, cast_column
from catalog.tables.matching import MatchedRows


class StaleRead(Conflict):
    """The table has moved on from the snapshot in which the rows were found: find them again."""


@dataclass(frozen=True)
class Addresses:
    """Addresses of rows, each of them once. `files` and `positions` are parallel."""

    files: Sequence[str]
    positions: Positions

    @classmethod
    def of(cls, files: Any, positions: Any) -> Addresses:
        """From two columns of Arrow."""
        return cls(files.to_pylist(), positions.to_numpy().astype(np.int64))

    @classmethod
    def union(cls, parts: Sequence[Addresses]) -> Addresses:
        files = [file for part in parts for file in part.files]
        positions = [part.positions for part in parts] or [np.empty(0, dtype=np.int64)]
        return cls(files, np.concatenate(positions))

    def __len__(self) -> int:
        return len(self.files)

    def check_distinct(self, table: str) -> None:
        """Invalid if a row is found twice: which of two values it gets would be chance."""
        if len({*zip(self.files, self.positions.tolist(), strict=True)}) != len(self):
            raise Invalid(
                f"a row of {table} matches several rows of FROM or USING, so its new values are ambiguous: make the "
                "join match one row each",
                subject=table,
            )

    def match(self, live_files: Iterable[LiveFile], reader: FileReader, table: str) -> list[MatchedRows]:
        """The live rows at the addresses, file by file. Internal for an address of no live row."""
        wanted: dict[str, list[int]] = {}
        for file, position in zip(self.files, self.positions.tolist(), strict=True):
            wanted.setdefault(file, []).append(position)
        matches = []
        for live in live_files:
            found = wanted.pop(live.file.file_path, None)
            if found is None:
                continue
            alive, positions = reader.alive(live), np.unique(np.array(found, dtype=np.int64))
            if positions[0] < 0 or positions[-1] >= len(alive) or not alive[positions].all():
                raise Internal(f"{table}: a row that the statement found is not in {live.file.file_path}")
            matches.append(MatchedRows(live, positions, alive))
        if wanted:
            raise Internal(
                f"{table}: the statement found rows in {next(iter(wanted))}, which the snapshot does not have"
            )
        return matches

    def updated(
        self, matches: Sequence[MatchedRows], reader: FileReader, schema: Schema, updates: pa.Table
    ) -> pa.Table:
        """The rows at the addresses with the columns of `updates` replaced. Memory: the touched rows."""
        number = {address: at for at, address in enumerate(zip(self.files, self.positions.tolist(), strict=True))}
        target = schema_to_pyarrow(schema, include_field_ids=False)
        parts = []
        for match in matches:
            path = match.live.file.file_path
            stored = reader.read(match.live.file, schema).take(match.positions)
            order = [number[path, position] for position in match.positions.tolist()]
            new = updates.take(order)
            columns = [
                cast_column(new[field.name] if field.name in updates.column_names else stored[field.name], field.type)
                for field in target
            ]
            parts.append(pa.Table.from_arrays(columns, schema=target))
        return pa.concat_tables(parts) if parts else target.empty_table()


class AddressedChange(NamedTuple):
    """What happens to rows: they get the values of `updates`, row by row in the order of the addresses, or, if that is
    None, are deleted."""

    addresses: Addresses
    updates: pa.Table | None = None
