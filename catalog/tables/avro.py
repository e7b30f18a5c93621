"""Avro files as Iceberg's metadata uses them, with everything that is the same in each prepared once.

pyiceberg works out the writer and the header anew for each file, which costs more than a small commit's rows, and
puts every record into a block of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any

from pyiceberg.avro.file import _SCHEMA_KEY, MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.resolver import construct_writer, resolve_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.io import OutputFile
from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

BLOCK_RECORDS = 1000
_HEADER_WRITER = construct_writer(META_SCHEMA)


@dataclass(frozen=True)
class Layout:
    """A kind of file: what is stored, and what the records in memory look like."""

    name: str
    stored: Schema
    records: Schema

    @cached_property
    def writer(self) -> Writer:
        return resolve_writer(record_schema=self.records, file_schema=self.stored)

    @cached_property
    def text(self) -> str:
        return json.dumps(AvroSchemaConversion().iceberg_to_avro(self.stored, schema_name=self.name))


class PreparedOutput(AvroOutputFile[Any]):
    """pyiceberg's Avro output over a prepared layout; records are gathered into blocks of BLOCK_RECORDS."""

    def __init__(self, output_file: OutputFile, layout: Layout, metadata: Mapping[str, str]) -> None:
        self.output_file = output_file
        self.file_schema, self.schema_name = layout.stored, layout.name
        self.sync_bytes = os.urandom(SYNC_SIZE)
        self.writer = layout.writer
        self.metadata = dict(metadata)
        self._text = layout.text
        self._gathered: list[Any] = []

    def write_block(self, objects: list[Any]) -> None:
        self._gathered += objects
        if len(self._gathered) >= BLOCK_RECORDS:
            self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        self.output_stream.__exit__(kind, error, trace)

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            super().write_block(gathered)

    def _write_header(self) -> None:
        header = AvroFileHeader(MAGIC, {**self.metadata, _SCHEMA_KEY: self._text}, self.sync_bytes)
        _HEADER_WRITER.write(self.encoder, header)
