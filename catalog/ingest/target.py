"""A table as files are fitted to it: its columns, its key, its rule. Makes the table, or lets it grow."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from catalog.errors import Conflict, Invalid, NotFound
from catalog.ingest.rules import Rule, Rules
from catalog.pipeline.limits import Refused
from catalog.pipeline.media import MEDIA
from catalog.refusals import explained
from catalog.tables.manager import Tables
from catalog.tables.requests import key_of
from catalog.tables.versions import Version
from catalog.tables.writes import MODE

log = logging.getLogger(__name__)

GROWTHS = 5
"""How often a column is tried to be added while others change the table too."""


class Target:
    """One table during one run. Opening it is one request for the rule and those that load the table.

    `columns` is None as long as neither a rule nor a file has said them. Refused if there is no such namespace.
    """

    def __init__(self, tables: Tables, rules: Rules, name: str) -> None:
        self.name, self._tables, self._rules = name, tables, rules
        found = rules.find(name)
        self._is_ruled, self._tag = found is not None, found.tag if found else None
        self.rule = found.rule if found else Rule()
        self.columns: pa.Schema | None = None
        self.key: tuple[str, ...] = self.rule.key
        self.exists = False
        self._look()
        if not self.exists:
            self._check_namespace()
            if self.rule.inferred:  # from a table that is gone: the next one is inferred anew
                self._is_ruled, self.rule, self.key = False, Rule(), ()
            declared = self.rule.iceberg_schema()
            self.columns = _columns(declared) if declared else None

    @property
    def holds_media(self) -> bool | None:
        """Whether its rows are media's metadata; None if nothing has decided it yet."""
        return None if self.columns is None else set(MEDIA.names) <= set(self.columns.names)

    def news(self, schemas: Iterable[pa.Schema]) -> list[pa.Schema]:
        """What of a file's columns the table has yet to get; a column without any value says nothing yet."""
        if self.columns is None:
            return list(schemas)
        if self.rule.unknown != "evolve":
            return []
        known = set(self.columns.names)
        found = [[f for f in schema if f.name not in known and not pt.is_null(f.type)] for schema in schemas]
        for field in (field for fields in found for field in fields):
            if "." in field.name:
                raise Refused("a column with a dot in its name cannot be added to a table", column=field.name)
        return [pa.schema(fields) for fields in found if fields]

    def grow(self, news: pa.Schema) -> bool:
        """Makes the table, or adds the columns; False if there was nothing to do. Keeps an inferred rule."""
        before = self.columns
        if not self.exists:
            self._create(self.rule.iceberg_schema() or news)
        if len(news):
            self._add(news)
        if not self._is_ruled:
            self._record()
        return before != self.columns

    def admit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the columns that may go in. Refused if without the others no value is left."""
        if self.columns is None or self.rule.unknown == "reject":
            return batch
        kept = batch.select([name for name in batch.schema.names if name in self.columns.names])
        if kept.num_columns == batch.num_columns:
            return batch
        if all(column.null_count == batch.num_rows for column in kept.columns):
            raise Refused(f"it has none of the columns of {self.name}: {', '.join(self.columns.names)}")
        return kept

    def _look(self) -> Version | None:
        try:
            version = self._tables.catalogue.load(self.name)
        except NotFound:
            return None
        self.exists = True
        self.columns = _columns(version.schema)
        self.key = (() if self.rule.inferred else self.rule.key) or key_of(version)
        return version

    def _check_namespace(self) -> None:
        namespace = self.name.partition(".")[0]
        with explained(namespace):
            try:
                self._tables.catalogue.catalog.load_namespace_properties(namespace)
            except NoSuchNamespaceError:
                raise Refused(f"there is no namespace {namespace!r}: create it first") from None

    def _create(self, columns: Schema | pa.Schema) -> None:
        try:
            self._tables.create(self.name, columns, mode=self.rule.mode, key=self.rule.key)
        except Conflict:
            log.info("another process created the table", extra={"table": self.name})
        except (TypeError, ValueError) as error:
            raise Refused(f"its columns make no table: {error}") from None
        self._look()

    def _add(self, news: pa.Schema) -> None:
        for _ in range(GROWTHS):
            assert self.columns is not None
            missing = {field.name: field.type for field in news if field.name not in self.columns.names}
            if not missing:
                return
            try:
                self._tables.alter(self.name, add=missing)
            except Invalid:
                # Another process may have added one of them just now; if none did, the change itself cannot be.
                before = self.columns
                self._look()
                if before == self.columns:
                    raise
                continue
            self._look()

    def _record(self) -> None:
        """Once per table: what was found, for people to see and to make a rule of their own from."""
        version = self._look()
        if version is not None:
            columns = {f.name: json.loads(f.model_dump_json())["type"] for f in version.schema.fields}
            mode = version.properties.get(MODE, "cow")
            rule = Rule.model_validate({"columns": columns, "key": key_of(version), "mode": mode, "inferred": True})
            self._rules.record(self.name, rule, tag=self._tag)
            self._is_ruled = True


def _columns(schema: Schema) -> pa.Schema:
    """As readers of files give them: pyiceberg has every text and list in its large form."""
    return pa.schema([_small(field) for field in schema_to_pyarrow(schema, include_field_ids=False)])


def _small(field: pa.Field[Any]) -> pa.Field[Any]:
    return pa.field(field.name, _small_type(field.type))


def _small_type(kind: Any) -> Any:
    if pt.is_large_string(kind):
        return pa.string()
    if pt.is_large_binary(kind):
        return pa.binary()
    if pt.is_struct(kind):
        return pa.struct([_small(field) for field in kind])
    return pa.list_(_small_type(kind.value_type)) if pt.is_list(kind) or pt.is_large_list(kind) else kind
