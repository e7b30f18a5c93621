"""Writes Iceberg's Avro metadata files, with everything that files of one layout share prepared once.

pyiceberg derives the writer and the header again for each file, which costs more than a small commit's rows, and
writes each record as its own block.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any

from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.resolver import construct_writer, resolve_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.io import OutputFile
from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from catalog.iceberg import AVRO_SCHEMA_KEY

BLOCK_RECORDS = 1000
_HEADER_WRITER = construct_writer(META_SCHEMA)


@dataclass(frozen=True)
class Layout:
    """A kind of file: the schema of the file, and the schema of the records in memory."""

    name: str
    stored: Schema
    records: Schema

    @cached_property
    def writer(self) -> Writer:
        return resolve_writer(record_schema=self.records, file_schema=self.stored)

    @cached_property
    def avro_schema(self) -> str:
        return json.dumps(AvroSchemaConversion().iceberg_to_avro(self.stored, schema_name=self.name))


class PreparedOutput(AvroOutputFile[Any]):
    """pyiceberg's Avro output over a prepared layout. Writes records in blocks of about BLOCK_RECORDS."""

    def __init__(self, output_file: OutputFile, layout: Layout, metadata: Mapping[str, str]) -> None:
        self.output_file = output_file
        self.file_schema, self.schema_name = layout.stored, layout.name
        self.sync_bytes = os.urandom(SYNC_SIZE)
        self.writer = layout.writer
        self.metadata = dict(metadata)
        self._avro_schema = layout.avro_schema
        self._pending: list[Any] = []

    def write_block(self, objects: list[Any]) -> None:
        self._pending += objects
        if len(self._pending) >= BLOCK_RECORDS:
            self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        self.output_stream.__exit__(kind, error, trace)

    def _flush(self) -> None:
        records, self._pending = self._pending, []
        if records:
            super().write_block(records)

    def _write_header(self) -> None:
        header = AvroFileHeader(MAGIC, {**self.metadata, AVRO_SCHEMA_KEY: self._avro_schema}, self.sync_bytes)
        _HEADER_WRITER.write(self.encoder, header)
