"""Rows of many files into one table in one commit, each file under its own token; or of one large file, in pieces.

A token that stands in the table already adds nothing, however often and from wherever its file is delivered. With a
key, rows replace those that have the same one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.manifest import DataFile

from catalog.errors import Invalid
from catalog.ingest.ledger import Ledger
from catalog.pipeline.limits import Refused
from catalog.tables.commits import TOKEN, Receipt, make_receipt, receipt_of
from catalog.tables.deltas import Delta, noted
from catalog.tables.fileio import CommitIO
from catalog.tables.manager import Tables
from catalog.tables.rows import check_keys, check_rows
from catalog.tables.versions import Version
from catalog.tables.writes import Planner

SOURCES = "strandline.sources"
"""Summary property: for each token, in their order, the source whose delivery made its rows."""
# A piece of a large file in Arrow's size; as Parquet it is about a quarter of that.
PIECE_BYTES = 64 << 20
_POSITION = re.compile(
    r"^(?P<table>[^:]+): (?:row (?P<row>\d+), )?(?:column '(?P<column>[^']*)': )?(?P<reason>.*)$", re.S
)
_PAIR = re.compile(r"^rows (?P<first>\d+) and (?P<row>\d+) have the same key", re.S)


@dataclass(frozen=True)
class Load:
    """One file's rows. `batches` may be asked for again, and gives the same rows each time."""

    token: str
    source: str
    rows: int
    batches: Callable[[], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Made:
    """A token's receipt, the table's identity, and the source that made the rows (None: not known any more)."""

    receipt: Receipt
    table_uuid: str
    source: str | None


Result = Made | Invalid


def append(
    tables: Tables, name: str, loads: Sequence[Load], *, key: Sequence[str] = (), ledger: Ledger | None = None
) -> dict[str, Result]:
    """Token -> what was made, or why its rows do not fit the table. Those that fit become one commit.

    All rows are in memory together: for loads that were held anyway. Where two loads have a row with the same key,
    the later one's stays. `ledger` knows tokens whose snapshots have expired; it is asked only if some have.
    """
    return _Append(tables, name, loads, key, ledger, together=True).commit()


def append_in_pieces(
    tables: Tables, name: str, load: Load, *, key: Sequence[str] = (), ledger: Ledger | None = None
) -> Made:
    """A large load in a commit of its own, a data file for each piece. Memory: two pieces, and all keys if there is
    a key. Invalid if a row does not fit: nothing is visible then, and what was written is deleted."""
    outcome = _Append(tables, name, [load], key, ledger, together=False).commit()[load.token]
    if isinstance(outcome, Invalid):
        raise outcome
    return outcome


class _Append:
    def __init__(
        self,
        tables: Tables,
        name: str,
        loads: Sequence[Load],
        key: Sequence[str],
        ledger: Ledger | None,
        *,
        together: bool,
    ) -> None:
        self._tables, self._name, self._key, self._together = tables, name, tuple(key), together
        self._ledger = ledger
        # The same bytes twice in one group are one load: the first source's.
        self._loads: dict[str, Load] = {}
        for load in loads:
            self._loads.setdefault(load.token, load)
        self._tokens: dict[str, int] = {}
        self._properties: dict[str, str] = {}
        self._outcomes: dict[str, Result] = {}
        self._remembered: dict[str, Made | None] = {}
        self._written: tuple[object, Delta, CommitIO] | None = None
        self._keys: list[pa.Table] = []

    def commit(self) -> dict[str, Result]:
        version, snapshot, delta = self._tables.committer.write(
            self._name, self._plan, tokens=self._tokens, properties=self._properties, insist=True
        )
        for token, rows in self._tokens.items():
            receipt = make_receipt(version, snapshot, token, rows, delta)
            self._outcomes[token] = Made(receipt, version.uuid, self._loads[token].source)
        return self._outcomes

    def _plan(self, planner: Planner) -> Delta:
        """Decided anew in each attempt: another process may have committed a token, or changed the schema."""
        metadata = planner.version.metadata
        before = self._made_before(planner.version)
        fresh = [load for token, load in self._loads.items() if token not in before]
        orders = (metadata.current_schema_id, metadata.default_spec_id, metadata.default_sort_order_id)
        shape = (orders, [load.token for load in fresh])
        if self._written is not None and self._written[0] == shape:
            # The data files of a lost attempt are as good as new: a large file must not starve among small ones.
            _, delta, earlier = self._written
            paths = {file.file_path for file in delta.added}
            planner.io.inherit([written for written in earlier.settle() if written.path in paths])
        else:
            self._outcomes = dict(before)
            delta = self._write(planner, fresh)
        if not (self._together and self._key):  # an upsert's files hold rows of the version it was planned for
            planner.io.spare(file.file_path for file in delta.added)
            self._written = (shape, delta, planner.io)
        made = [load for load in fresh if load.token not in self._outcomes]
        self._tokens.clear()
        self._tokens.update({load.token: load.rows for load in made})
        self._properties[SOURCES] = " ".join(load.source for load in made)
        return self._replace(planner, delta) if self._key and not self._together and made else delta

    def _made_before(self, version: Version) -> dict[str, Made]:
        """By the table's own snapshots; for a table that has lost some, by the ledger too: one LIST for each token."""
        found = {
            token: Made(receipt, version.uuid, _source(version, receipt))
            for token, receipt in receipt_of(version, self._loads).items()
        }
        if self._ledger is not None and _has_forgotten(version):
            for token in self._loads.keys() - found.keys():
                if token not in self._remembered:
                    self._remembered[token] = self._remember(self._ledger, version, token)
                if (made := self._remembered[token]) is not None:
                    found[token] = made
        return found

    def _remember(self, ledger: Ledger, version: Version, token: str) -> Made | None:
        record = ledger.find_committed(token, version.uuid)
        if record is None:
            return None
        receipt = make_receipt(version, None, token, record.rows)
        return Made(replace(receipt, snapshot_id=record.snapshot_id, replayed=True), version.uuid, record.source)

    def _write(self, planner: Planner, fresh: Sequence[Load]) -> Delta:
        schema, rows, files = planner.version.schema, list[pa.Table](), list[DataFile]()
        for load in fresh:
            try:
                if self._together:
                    rows.append(_checked(schema, list(load.batches()), 0, self._name, self._key))
                else:
                    files += self._write_pieces(planner, load)
            except Invalid as error:
                if not self._together:
                    raise  # files of it may be written: the whole attempt is given up, and they are deleted
                self._outcomes[load.token] = error
        if rows and self._key:
            return planner.upsert(_last_of_each(pa.concat_tables(rows), self._key), self._key)
        if rows:
            files += planner.files.write(pa.concat_tables(rows), planner.io)
        count = sum(load.rows for load in fresh if load.token not in self._outcomes)
        return Delta(added=tuple(files), rows=count, mode="append")

    def _write_pieces(self, planner: Planner, load: Load) -> list[DataFile]:
        files, piece, first, size = list[DataFile](), list[pa.RecordBatch](), 0, 0
        self._keys = []

        def write() -> None:
            rows = _checked(planner.version.schema, piece, first, self._name)
            if self._key:
                self._keys.append(rows.select(list(self._key)))
            files.extend(planner.files.write(rows, planner.io))
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
        if self._key:
            with _positions(self._name, 0):
                check_keys(pa.concat_tables(self._keys), self._key, table=self._name)
        return files

    def _replace(self, planner: Planner, new: Delta) -> Delta:
        """The new files, and those of the old rows with their keys gone: decided by the version at hand."""
        old = planner.delete_keys(pa.concat_tables(self._keys), self._key)
        return replace(old, added=(*new.added, *old.added), rows=new.rows)


@contextmanager
def _positions(name: str, first: int) -> Iterator[None]:
    """Within the block, Invalid becomes Refused with the row counted from the file's beginning, from 0."""
    try:
        yield
    except Invalid as error:
        found = _POSITION.match(error.message)
        if found is None:
            raise
        pair = _PAIR.match(found["reason"])
        number = pair["row"] if pair else found["row"]
        row = None if number is None else first + int(number)
        raise Refused(f"{found['reason']} ({name})", row=row, column=found["column"]) from None


def _checked(
    schema: object, batches: Sequence[pa.RecordBatch], first: int, name: str, key: Sequence[str] = ()
) -> pa.Table:
    """The rows in the table's schema; Refused with the row counted from the file's beginning, from 0."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    try:
        joined = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowTypeError as error:
        raise Refused(f"the types of its columns change on the way: {error}") from None
    with _positions(name, first):
        rows = check_rows(schema, joined, table=name)  # type: ignore[arg-type]
        if key:
            check_keys(rows, key, table=name)
    return rows


def _last_of_each(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """One row for each key: the last."""
    numbers = pa.array(range(rows.num_rows), pa.int64())
    last = rows.select(list(key)).append_column("__row", numbers).group_by(list(key)).aggregate([("__row", "max")])
    return rows if last.num_rows == rows.num_rows else rows.take(last["__row_max"].combine_chunks().sort())


def _source(version: Version, receipt: Receipt) -> str | None:
    """The source that made a token's rows, as the token's snapshot has it."""
    snapshot = version.metadata.snapshot_by_id(receipt.snapshot_id or 0)
    if snapshot is None:
        return None
    made = zip(noted(snapshot, TOKEN).split(), noted(snapshot, SOURCES).split(), strict=False)
    return dict(made).get(receipt.token)


def _has_forgotten(version: Version) -> bool:
    """Whether snapshots, and the tokens in them, have expired: each took a sequence number when it was made."""
    made = getattr(version.metadata, "last_sequence_number", None)  # format 1 does not count: ask then
    return made is None or len(version.metadata.snapshots) < int(made)
