"""Rules: how files become rows of a table. One small object per table, `rules/<namespace>/<table>.json`.

A rule may exist before its table. Once the table exists, its own columns apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from catalog.core.aws_errors import is_missing, lost_race, translate_aws_error
from catalog.core.errors import Conflict, Invalid, NotFound
from catalog.core.s3_layout import RULES
from catalog.formats import CsvOptions
from catalog.ingest.s3_events import parse_table
from catalog.tables import Mode, Tables, as_schema, with_key

Unknown = Literal["reject", "ignore", "evolve"]


class Rule(BaseModel):
    """How files become rows of one table.

    `columns`: name -> Iceberg type (`long`, `decimal(10, 2)`, or Iceberg's JSON for nested types); without them the
    first files' columns are taken. `key`: rows replace the rows with the same key; without one they are appended.
    `mode`: the write mode of a table that is created for this rule. `unknown`, for columns that the table does not
    have: `reject` the file, `ignore` the columns, or `evolve` the table by them. `csv`: how CSV files are written,
    where that cannot be detected. `inferred`: derived from files.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: dict[str, str | dict[str, Any]] | None = Field(default=None, min_length=1)
    key: tuple[str, ...] = ()
    mode: Mode = "cow"
    unknown: Unknown = "reject"
    csv: CsvOptions = CsvOptions()
    inferred: bool = False

    def iceberg_schema(self) -> Schema | None:
        """The columns as an Iceberg schema, with the key's required. Invalid for an unknown type or key column."""
        return None if self.columns is None else with_key(as_schema(self.columns), self.key)


@dataclass(frozen=True)
class StoredRule:
    """A rule as it was read. `tag` is its ETag: pass it with a change, which fails if the rule has changed."""

    table: str
    rule: Rule
    tag: str


def parse_rule(source: Any) -> Rule:
    """A rule from a mapping or JSON text; Invalid lists every problem."""
    try:
        return Rule.model_validate_json(source) if isinstance(source, str | bytes) else Rule.model_validate(source)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, p['loc'])) or 'rule'}: {p['msg']}" for p in error.errors())
        raise Invalid(f"the rule is not valid: {problems}") from None


class RuleStore:
    """The rules of one lake. Each method is one request, `all` one per rule; `set` also loads the table."""

    def __init__(self, s3: Any, bucket: str, tables: Tables) -> None:
        self._s3, self._bucket, self._tables = s3, bucket, tables

    def find(self, table: str) -> StoredRule | None:
        """None if there is no rule for `<namespace>.<table>`."""
        try:
            with self._translated(table):
                response = self._s3.get_object(Bucket=self._bucket, Key=_key(table))
                return StoredRule(table, parse_rule(response["Body"].read()), response["ETag"])
        except NotFound:
            return None

    def get(self, table: str) -> StoredRule:
        stored = self.find(table)
        if stored is None:
            advice = "set one with `strandline ingest rule set`, or upload a file, from which one is inferred"
            raise NotFound(f"there is no rule for {table}: {advice}", subject=table)
        return stored

    def set(self, table: str, rule: Rule, *, tag: str | None = None) -> StoredRule:
        """Stores the rule. `tag`: that of the rule it replaces, or None if there must be none; Conflict otherwise.

        Invalid if its columns or its key do not match the table, if that exists.
        """
        self._check(table, rule)
        return self._put(table, rule, tag)

    def replace(self, table: str, rule: Rule) -> StoredRule:
        """Like `set`, and replaces the current rule if there is one, whether it was set or inferred."""
        current = self.find(table)
        return self.set(table, rule, tag=current.tag if current else None)

    def record(self, table: str, rule: Rule, *, tag: str | None = None) -> None:
        """Stores an inferred rule, unless a rule was set meanwhile. `tag`: that of the inferred rule it replaces."""
        with suppress(Conflict):
            self._put(table, rule.model_copy(update={"inferred": True}), tag)

    def remove(self, table: str, *, tag: str | None = None) -> None:
        """Removes the rule; the table does not change. NotFound if there is none, Conflict if it has another tag."""
        stored = self.get(table)
        if tag is not None and tag != stored.tag:
            raise _changed(table)
        with self._translated(table):
            self._s3.delete_object(Bucket=self._bucket, Key=_key(table), IfMatch=stored.tag)

    def all(self, namespace: str | None = None) -> list[StoredRule]:
        """All rules, or those of one namespace, ordered by table."""
        prefix = RULES if namespace is None else f"{RULES}{namespace}/"
        with self._translated(namespace or "rules"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        names = [key.removeprefix(RULES).removesuffix(".json").replace("/", ".") for key in keys]
        return [stored for name in sorted(names) if (stored := self.find(name)) is not None]

    def _put(self, table: str, rule: Rule, tag: str | None) -> StoredRule:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        body = rule.model_dump_json(indent=2).encode()
        with self._translated(table):
            response = self._s3.put_object(
                Bucket=self._bucket, Key=_key(table), Body=body, ContentType="application/json", **condition
            )
        return StoredRule(table, rule, response["ETag"])

    def _check(self, table: str, rule: Rule) -> None:
        declared = rule.iceberg_schema()
        try:
            schema = self._tables.load(table).schema()
        except NotFound:
            return
        with_key(schema, rule.key)
        existing = _arrow(schema)
        for field in _arrow(declared) if declared else pa.schema([]):
            if field.name not in existing.names:
                advice = "add it to the table first, with `strandline table alter`"
                raise Invalid(f"{table} has no column {field.name!r}: {advice}", subject=table)
            current = existing.field(field.name).type
            if current != field.type:
                reason = f"column {field.name!r} of {table} is {current}, and the rule declares {field.type}"
                raise Invalid(f"{reason}: correct the rule", subject=table)

    @contextmanager
    def _translated(self, table: str) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            if is_missing(error):
                raise NotFound(f"there is no rule for {table}", subject=table) from None
            if lost_race(error):
                raise _changed(table) from None
            raise translate_aws_error(error, f"the rule of {table}") from error


def _arrow(schema: Schema) -> pa.Schema:
    return schema_to_pyarrow(schema, include_field_ids=False)


def _changed(table: str) -> Conflict:
    return Conflict(f"the rule of {table} was changed meanwhile: read it again, then repeat the change", subject=table)


def _key(table: str) -> str:
    namespace, name = parse_table(table)
    return f"{RULES}{namespace}/{name}.json"
