"""Files on this machine, or stdin, as rows: format by suffix or as told, and each fault with file, row and column."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from catalog.errors import Invalid, NotFound

if TYPE_CHECKING:
    import pyarrow as pa

STDIN = "-"
READ_BYTES = 4 << 20
# What a row file is called when it is in one of these formats; a note or a log line is text, and has its own way in.
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
CODECS = ("", ".gz", ".zst")


class RowFormat(StrEnum):
    JSONL = "jsonl"
    JSON = "json"
    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"


class ExportFormat(StrEnum):
    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"


@dataclass(frozen=True)
class RowFile:
    """A file of rows. Its name says the format; `-` is stdin, held in memory because it comes once."""

    path: str
    name: str
    held: bytes | None = None

    @classmethod
    def of(cls, path: str, format_: RowFormat | None = None) -> RowFile:
        if path == STDIN:
            if format_ is None:
                raise Invalid("rows from stdin have no suffix to know them by: say --format jsonl, csv or parquet")
            return cls("stdin", f"stdin.{format_}", sys.stdin.buffer.read())
        if not Path(path).is_file():
            raise NotFound(f"there is no file {path}", subject=path)
        return cls(path, f"given.{format_}" if format_ else Path(path).name)

    def open(self) -> BinaryIO:
        if self.held is not None:
            return io.BytesIO(self.held)
        try:
            return Path(self.path).open("rb")
        except OSError as error:
            raise Invalid(f"{self.path} cannot be read: {error}", subject=self.path) from None

    @property
    def size(self) -> int:
        return len(self.held) if self.held is not None else Path(self.path).stat().st_size

    def digest(self) -> str:
        """SHA-256 of the bytes: the file's token in whatever table it goes into."""
        digest = sha256()
        with self.open() as stream:
            while part := stream.read(READ_BYTES):
                digest.update(part)
        return digest.hexdigest()

    def batches(self, hint: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in bounded batches; Invalid names the file and the position.

        `hint`: the columns of the table they are for. Text where it has bytes or UUIDs is read as cli.encoded says.
        """
        from catalog.pipeline.formats import read_rows
        from catalog.pipeline.limits import Limits
        from cli.encoded import decoded

        everything = sys.maxsize  # the limits guard functions against strangers' files; here memory is bounded anyway
        limits = Limits(object_bytes=everything, decompressed_bytes=everything)
        with self.open() as stream, self.faults_named():
            first = 0
            for batch in read_rows(stream, self.name, limits, hint):
                yield batch if hint is None else decoded(batch, hint, first)
                first += batch.num_rows

    def table(self, hint: pa.Schema | None = None) -> pa.Table:
        """All rows at once."""
        return joined(list(self.batches(hint)), self.path)

    def schema(self) -> pa.Schema:
        """The columns, read off a Parquet file's footer, or inferred from every row of another."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from catalog.pipeline.formats import detect, unify

        with self.faults_named():
            found = detect(self.name)
            if found.kind == "parquet" and found.codec is None:
                with self.open() as stream:
                    try:
                        return unify([pq.read_schema(stream)])
                    except (pa.ArrowException, OSError) as error:
                        raise Invalid(f"it is no Parquet file: {error}") from None
            schemas: list[pa.Schema] = []
            for batch in self.batches():
                if batch.schema not in schemas:
                    schemas.append(batch.schema)
            return unify(schemas, loose=found.kind in ("csv", "tsv"))

    @contextmanager
    def faults_named(self) -> Iterator[None]:
        try:
            yield
        except Invalid as error:
            if error.subject == self.path:
                raise
            raise Invalid(f"{self.path}: {error.message}", subject=self.path) from None


def joined(batches: Sequence[Any], subject: str) -> pa.Table:
    """One table; integers in one batch and doubles in the next go together, text and numbers do not."""
    import pyarrow as pa

    try:
        return pa.concat_tables([pa.Table.from_batches([b]) for b in batches], promote_options="permissive")
    except pa.ArrowTypeError as error:
        raise Invalid(f"{subject}: the types of its columns change on the way: {error}", subject=subject) from None


def find_files(paths: Sequence[str], format_: RowFormat | None) -> list[RowFile]:
    """The files, and of a directory all below it whose suffix is known, by name. Hidden ones are passed over."""
    found: list[RowFile] = []
    for path in paths:
        if not Path(path).is_dir():
            found.append(RowFile.of(path, format_))
            continue
        inside = [file for file in sorted(Path(path).rglob("*")) if file.is_file() and _is_wanted(file, Path(path))]
        if not inside:
            raise NotFound(f"below {path} there is no file that ends in {', '.join(SUFFIXES)}", subject=path)
        found += [RowFile.of(str(file), format_) for file in inside]
    return found


def _is_wanted(file: Path, root: Path) -> bool:
    if any(part.startswith((".", "_")) for part in file.relative_to(root).parts):
        return False
    return file.name.lower().endswith(tuple(suffix + codec for suffix in SUFFIXES for codec in CODECS))
