"""The table that files are ingested into: its columns, key and rule. Creates the table, and adds columns to it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from catalog.core.aws_errors import translate_aws_errors
from catalog.core.errors import Conflict, Invalid, NotFound
from catalog.formats import MEDIA, CsvOptions, FileRejected, Inference, start_inference
from catalog.ingest.rules import Rule, RuleStore
from catalog.tables import MODE_PROPERTY, Tables, TableVersion, table_key

log = logging.getLogger(__name__)

MUST_EXIST = {"strandline-table": "must-exist"}
"""S3 metadata of a landed file: its table is not created for it. The API signs it with an upload's URL."""
ADD_ATTEMPTS = 5
"""How often adding columns is tried while other processes change the table."""


class TargetTable:
    """One table during one run. Costs one request for the rule, and those that load the table.

    `columns` is None until a rule or a file defines them. Raises FileRejected if the namespace does not exist.
    """

    def __init__(self, tables: Tables, rules: RuleStore, name: str) -> None:
        self.name, self._tables, self._rules = name, tables, rules
        stored = rules.find(name)
        self._has_rule, self._tag = stored is not None, stored.tag if stored else None
        self.rule = stored.rule if stored else Rule()
        self.columns: pa.Schema | None = None
        self.key: tuple[str, ...] = self.rule.key
        self.exists = False
        self._load()
        if not self.exists:
            self._check_namespace()
            if self.rule.inferred:  # from a table that was dropped: infer a new rule
                self._has_rule, self.rule, self.key = False, Rule(), ()
            declared = self.rule.iceberg_schema()
            self.columns = _columns(declared) if declared else None

    @property
    def csv(self) -> CsvOptions:
        """How its CSV files are written."""
        return self.rule.csv

    @property
    def holds_media(self) -> bool | None:
        """Whether its rows are metadata of media; None while the columns are not defined."""
        return None if self.columns is None else set(MEDIA.names) <= set(self.columns.names)

    def new_columns(self, schemas: Iterable[pa.Schema]) -> list[pa.Schema]:
        """The columns of a file that must be added to the table; a column without any value has no type yet."""
        if self.columns is None:
            return list(schemas)
        if self.rule.unknown != "evolve":
            return []
        names = set(self.columns.names)
        missing = [[f for f in schema if f.name not in names and not pt.is_null(f.type)] for schema in schemas]
        for field in (field for fields in missing for field in fields):
            if "." in field.name:
                raise FileRejected("a new column must not have a dot in its name: rename it", column=field.name)
        return [pa.schema(fields) for fields in missing if fields]

    def check_creation(self, metadata: Mapping[str, str]) -> None:
        """Raises FileRejected for a file that would create the table, from somebody who may not create it."""
        declared = self._has_rule and not self.rule.inferred
        if not self.exists and not declared and MUST_EXIST.items() <= metadata.items():
            reason = f"{self.name} does not exist, and the file is from a caller that may not create it"
            raise FileRejected(f"{reason}: ask an admin to create the table, then upload the file again")

    def start_inference(self, name: str) -> Inference | None:
        """For a file that may define columns of the table; None if the table's columns are all that it can have."""
        if self.columns is not None and self.rule.unknown != "evolve":
            return None
        return start_inference(name, self.columns, self.csv)

    def evolve(self, columns: pa.Schema, inference: Inference) -> bool:
        """Creates the table, or adds the columns; False if neither was needed. Stores a rule if there is none."""
        before = self.columns
        self._store_order(inference)
        if not self.exists:
            self._create(self.rule.iceberg_schema() or columns)
        if len(columns):
            self._add(columns)
        if not self._has_rule:
            self._store_inferred_rule()
        return before != self.columns

    def select_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch without the columns that the rule ignores. Raises FileRejected if no value is left."""
        if self.columns is None or self.rule.unknown == "reject":
            return batch
        selected = batch.select([name for name in batch.schema.names if name in self.columns.names])
        if selected.num_columns == batch.num_columns:
            return batch
        if all(column.null_count == batch.num_rows for column in selected.columns):
            columns = ", ".join(self.columns.names)
            raise FileRejected(f"the file has values in none of the columns of {self.name}: name them {columns}")
        return selected

    def _load(self) -> TableVersion | None:
        try:
            version = self._tables.table_store.load(self.name)
        except NotFound:
            return None
        self.exists = True
        self.columns = _columns(version.schema)
        self.key = (() if self.rule.inferred else self.rule.key) or table_key(version)
        return version

    def _check_namespace(self) -> None:
        namespace = self.name.partition(".")[0]
        with translate_aws_errors(namespace):
            try:
                self._tables.table_store.catalog.load_namespace_properties(namespace)
            except NoSuchNamespaceError:
                raise FileRejected(f"there is no namespace {namespace!r}: create it, or correct the key") from None

    def _create(self, columns: Schema | pa.Schema) -> None:
        if not len(columns.names if isinstance(columns, pa.Schema) else columns.fields):
            raise FileRejected("the file has no columns, so no table can be created from it")
        try:
            self._tables.create(self.name, columns, mode=self.rule.mode, key=self.rule.key)
        except Conflict:
            log.info("another process created the table", extra={"table": self.name})
        except (TypeError, ValueError) as error:
            raise FileRejected(f"the table cannot be created from the file's columns: {error}") from None
        self._load()

    def _add(self, columns: pa.Schema) -> None:
        for _ in range(ADD_ATTEMPTS):
            assert self.columns is not None
            missing = {field.name: field.type for field in columns if field.name not in self.columns.names}
            if not missing:
                return
            try:
                self._tables.alter(self.name, add=missing)
            except Invalid:
                # Another process may have added one of them; if the columns are unchanged, the change is impossible.
                before = self.columns
                self._load()
                if before == self.columns:
                    raise
                continue
            self._load()

    def _store_order(self, inference: Inference) -> None:
        """Stores the order of days and months that the files' rows show, so that later files are read by it. It is
        stored before the table has such a column: after a crash between the two, it is inferred again."""
        order = inference.with_order().dates
        if order is None or self.rule.csv.dates is not None:
            return
        self.rule = self.rule.model_copy(
            update={"csv": replace(self.rule.csv, dates=order), "inferred": self.rule.inferred or not self._has_rule}
        )
        self._tag = self._rules.set(self.name, self.rule, tag=self._tag).tag

    def _store_inferred_rule(self) -> None:
        """Stores the table's columns, key and mode as a rule, once per table, for users to see and to edit."""
        version = self._load()
        if version is not None:
            columns = {f.name: json.loads(f.model_dump_json())["type"] for f in version.schema.fields}
            mode = version.properties.get(MODE_PROPERTY, "cow")
            found = {"columns": columns, "key": table_key(version), "mode": mode, "csv": self.csv, "inferred": True}
            rule = Rule.model_validate(found)
            self._rules.record(self.name, rule, tag=self._tag)
            self._has_rule = True


def _columns(schema: Schema) -> pa.Schema:
    """The columns in the types that file readers produce: pyiceberg returns every text and list in its large form."""
    return pa.schema([_small(field) for field in schema_to_pyarrow(schema, include_field_ids=False)])


def _small(field: pa.Field[Any]) -> pa.Field[Any]:
    return pa.field(field.name, _small_type(field.type))


def _small_type(type_: Any) -> Any:
    if pt.is_large_string(type_):
        return pa.string()
    if pt.is_large_binary(type_):
        return pa.binary()
    if pt.is_struct(type_):
        return pa.struct([_small(field) for field in type_])
    return pa.list_(_small_type(type_.value_type)) if pt.is_list(type_) or pt.is_large_list(type_) else type_
