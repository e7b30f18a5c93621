"""Reads files on this machine, or stdin, as rows. An error names the file, row and column."""

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

from catalog import Invalid, NotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from catalog.formats import CsvOptions, Inference

STDIN = "-"
READ_BYTES = 4 << 20
# Suffixes of files of rows. Notes and logs are text: `strandline ingest put` takes those.
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
CODECS = ("", ".gz", ".zst")


class RowFormat(StrEnum):
    JSONL = "jsonl"
    JSON = "json"
    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"


@dataclass(frozen=True)
class RowFile:
    """A file of rows. `name` decides its format. `data` is set for stdin, which can be read only once."""

    path: str
    name: str
    data: bytes | None = None

    @classmethod
    def of(cls, path: str, format_: RowFormat | None = None) -> RowFile:
        if path == STDIN:
            if format_ is None:
                raise Invalid("rows from stdin have no suffix: add --format jsonl, csv or parquet")
            return cls("stdin", f"stdin.{format_}", sys.stdin.buffer.read())
        if not Path(path).is_file():
            raise NotFound(f"there is no file {path}: check the path, or pass - for stdin", subject=path)
        return cls(path, f"file.{format_}" if format_ else Path(path).name)

    def open(self) -> BinaryIO:
        if self.data is not None:
            return io.BytesIO(self.data)
        try:
            return Path(self.path).open("rb")
        except OSError as error:
            raise Invalid(f"{self.path} cannot be read: {error}", subject=self.path) from None

    @property
    def size(self) -> int:
        return len(self.data) if self.data is not None else Path(self.path).stat().st_size

    @property
    def identity(self) -> str:
        """The resolved path: the same for the same file, however its path is typed."""
        return STDIN if self.data is not None else str(Path(self.path).resolve())

    def digest(self) -> str:
        """SHA-256 of the bytes."""
        digest = sha256()
        with self.open() as stream:
            while part := stream.read(READ_BYTES):
                digest.update(part)
        return digest.hexdigest()

    def batches(self, hint: pa.Schema | None = None, csv: CsvOptions | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in bounded batches; Invalid names the file and the position.

        `hint`: the columns of the target table. cli.decoding turns text into its bytes and UUIDs. Columns of CSV files
        that it does not have are text.
        """
        from catalog.formats import FormatLimits, read_rows
        from cli.decoding import decoded

        unlimited = sys.maxsize  # the limits protect functions from foreign files; here memory is bounded anyway
        limits = FormatLimits(object_bytes=unlimited, decompressed_bytes=unlimited)
        with self.open() as stream, self.faults_named():
            first = 0
            for batch in read_rows(stream, self.name, limits, hint, csv):
                yield batch if hint is None else decoded(batch, hint, first)
                first += batch.num_rows

    def table(self, hint: pa.Schema | None = None) -> pa.Table:
        """All rows at once; without a hint, in the types that all rows have."""
        csv = None
        if hint is None and (inferred := self.infer())[1] is not None:
            csv, hint = inferred[1].with_order(), self.schema(inferred)
        return joined(list(self.batches(hint, csv)), self.path)

    def schema(self, inferred: tuple[list[pa.Schema], Inference | None] | None = None) -> pa.Schema:
        """The columns: from the footer of a Parquet file, otherwise inferred from all rows."""
        from catalog.formats import unify

        schemas, inference = inferred or self.infer()
        with self.faults_named():
            return unify(schemas if inference is None else map(inference.typed, schemas))

    def infer(self) -> tuple[list[pa.Schema], Inference | None]:
        """The columns as they are read, and what all rows say of those that are text. Reads a Parquet file's footer
        only."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from catalog.formats import detect, start_inference

        with self.faults_named():
            format_ = detect(self.name)
            if format_.kind == "parquet" and format_.codec is None:
                with self.open() as stream:
                    try:
                        return [pq.read_schema(stream)], None
                    except (pa.ArrowException, OSError) as error:
                        raise Invalid(f"it is not a Parquet file: {error}") from None
            schemas, inference = list[pa.Schema](), start_inference(self.name)
            for batch in self.batches():
                if inference is not None:
                    inference.observe(batch)
                if batch.schema not in schemas:
                    schemas.append(batch.schema)
            return schemas, inference

    @contextmanager
    def faults_named(self) -> Iterator[None]:
        """Puts the file's path in front of the block's Invalid messages."""
        try:
            yield
        except Invalid as error:
            if error.subject == self.path:
                raise
            raise Invalid(f"{self.path}: {error.message}", subject=self.path) from None


def joined(batches: Sequence[Any], subject: str) -> pa.Table:
    """One table. Integers and doubles in different batches become doubles; text and numbers raise Invalid."""
    import pyarrow as pa

    try:
        return pa.concat_tables([pa.Table.from_batches([b]) for b in batches], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise Invalid(f"{subject}: a column has different types in different rows: {error}", subject=subject) from None


def find_files(paths: Sequence[str], format_: RowFormat | None) -> list[RowFile]:
    """The files, and for a directory all files below it with one of SUFFIXES, by name. Hidden files are skipped."""
    files: list[RowFile] = []
    for path in paths:
        if not Path(path).is_dir():
            files.append(RowFile.of(path, format_))
            continue
        inside = [file for file in sorted(Path(path).rglob("*")) if file.is_file() and _is_row_file(file, Path(path))]
        if not inside:
            raise NotFound(f"no file below {path} ends in {', '.join(SUFFIXES)}: name the files", subject=path)
        files += [RowFile.of(str(file), format_) for file in inside]
    return files


def _is_row_file(file: Path, root: Path) -> bool:
    if any(part.startswith((".", "_")) for part in file.relative_to(root).parts):
        return False
    return file.name.lower().endswith(tuple(suffix + codec for suffix in SUFFIXES for codec in CODECS))
