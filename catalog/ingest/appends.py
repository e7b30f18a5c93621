"""Rows of many files into one table in one commit, each file under its own token; or of one large file, in pieces.

A token that stands in the table already adds nothing, however often and from wherever its file is delivered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.manifest import DataFile

from catalog.errors import Invalid
from catalog.pipeline.limits import Refused
from catalog.tables.commits import Receipt, make_receipt, receipt_of
from catalog.tables.deltas import Delta
from catalog.tables.fileio import CommitIO
from catalog.tables.manager import Tables
from catalog.tables.rows import check_rows
from catalog.tables.writes import Planner

# A piece of a large file in Arrow's size; as Parquet it is about a quarter of that.
PIECE_BYTES = 64 << 20
_POSITION = re.compile(
    r"^(?P<table>[^:]+): (?:row (?P<row>\d+), )?(?:column '(?P<column>[^']*)': )?(?P<reason>.*)$", re.S
)


@dataclass(frozen=True)
class Load:
    """One file's rows. `batches` may be asked for again, and gives the same rows each time."""

    token: str
    rows: int
    batches: Callable[[], Iterator[pa.RecordBatch]]


def append(tables: Tables, name: str, loads: Sequence[Load]) -> dict[str, Receipt | Invalid]:
    """Token -> its receipt, or why its rows do not fit the table. Those that fit become one commit.

    All rows are in memory together: for loads that were held anyway.
    """
    group = _Append(tables, name, loads, together=True)
    return group.commit()


def append_in_pieces(tables: Tables, name: str, load: Load) -> Receipt:
    """A large load in a commit of its own, a data file for each piece. Memory: two pieces. Invalid if a row does
    not fit: nothing is visible then, and what was written is deleted."""
    outcome = _Append(tables, name, [load], together=False).commit()[load.token]
    if isinstance(outcome, Invalid):
        raise outcome
    return outcome


class _Append:
    def __init__(self, tables: Tables, name: str, loads: Sequence[Load], *, together: bool) -> None:
        self._tables, self._name, self._together = tables, name, together
        self._loads = {load.token: load for load in loads}
        self._tokens: dict[str, int] = {}
        self._outcomes: dict[str, Receipt | Invalid] = {}
        self._written: tuple[object, Delta, CommitIO] | None = None

    def commit(self) -> dict[str, Receipt | Invalid]:
        version, snapshot, delta = self._tables.committer.write(
            self._name, self._plan, tokens=self._tokens, insist=True
        )
        for token, rows in self._tokens.items():
            self._outcomes[token] = make_receipt(version, snapshot, token, rows, delta)
        return self._outcomes

    def _plan(self, planner: Planner) -> Delta:
        """Decided anew in each attempt: another process may have committed a token, or changed the schema."""
        version, metadata = planner.version, planner.version.metadata
        replayed = receipt_of(version, self._loads)
        fresh = [load for token, load in self._loads.items() if token not in replayed]
        orders = (metadata.current_schema_id, metadata.default_spec_id, metadata.default_sort_order_id)
        shape = (orders, [load.token for load in fresh])
        self._tokens.clear()
        if self._written is not None and self._written[0] == shape:
            # The data files of a lost attempt are as good as new: a large file must not starve among small ones.
            _, delta, before = self._written
            paths = {file.file_path for file in delta.added}
            planner.io.inherit([written for written in before.settle() if written.path in paths])
        else:
            self._outcomes = dict(replayed)
            delta = self._write(planner, fresh)
        planner.io.spare(file.file_path for file in delta.added)
        self._written = (shape, delta, planner.io)
        self._tokens.update({load.token: load.rows for load in fresh if load.token not in self._outcomes})
        return delta

    def _write(self, planner: Planner, fresh: Sequence[Load]) -> Delta:
        schema, rows, files = planner.version.schema, list[pa.Table](), list[DataFile]()
        for load in fresh:
            try:
                if self._together:
                    rows.append(_checked(schema, list(load.batches()), 0, self._name))
                else:
                    files += self._write_pieces(planner, load)
            except Invalid as error:
                if not self._together:
                    raise  # files of it may be written: the whole attempt is given up, and they are deleted
                self._outcomes[load.token] = error
        if rows:
            files += planner.files.write(pa.concat_tables(rows), planner.io)
        count = sum(load.rows for load in fresh if load.token not in self._outcomes)
        return Delta(added=tuple(files), rows=count, mode="append")

    def _write_pieces(self, planner: Planner, load: Load) -> list[DataFile]:
        files, piece, first, size = list[DataFile](), list[pa.RecordBatch](), 0, 0

        def write() -> None:
            files.extend(planner.files.write(_checked(planner.version.schema, piece, first, self._name), planner.io))
            planner.io.settle()  # one piece in flight, not a quarter of a gigabyte

        for batch in load.batches():
            piece.append(batch)
            size += batch.nbytes
            if size >= PIECE_BYTES:
                write()
                first, size = first + sum(part.num_rows for part in piece), 0
                piece.clear()
        if piece:
            write()
        return files


def _checked(schema: object, batches: Sequence[pa.RecordBatch], first: int, name: str) -> pa.Table:
    """The rows in the table's schema; Refused with the row counted from the file's beginning, from 0."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    try:
        joined = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowTypeError as error:
        raise Refused(f"the types of its columns change on the way: {error}") from None
    try:
        return check_rows(schema, joined, table=name)  # type: ignore[arg-type]
    except Invalid as error:
        found = _POSITION.match(error.message)
        if found is None:
            raise
        row = None if found["row"] is None else first + int(found["row"])
        raise Refused(f"{found['reason']} ({name})", row=row, column=found["column"]) from None
