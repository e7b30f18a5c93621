"""Rules: what a table's files should look like, one small object per table in the bucket, `rules/<ns>/<table>.json`.

A rule may be there before its table. Once the table is there, its own columns are what counts.
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

from catalog.errors import Conflict, Invalid, NotFound
from catalog.pipeline.landing import parse_table
from catalog.places import RULES
from catalog.refusals import explain
from catalog.tables.creation import as_schema, with_key
from catalog.tables.manager import Tables
from catalog.tables.modes import Mode

Unknown = Literal["reject", "ignore", "evolve"]
_CHANGED = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})


class Rule(BaseModel):
    """How files become rows of one table.

    `columns`: name -> Iceberg type (`long`, `decimal(10, 2)`, or Iceberg's JSON for nested ones); without them the
    first files say. `key`: rows replace those with the same key; without one they are added. `mode`: how the table
    is written, if it is made for this rule. `unknown`: what becomes of columns the table does not have: the file is
    refused, they are left out, or they are added to the table. `inferred`: nobody set it, it says what was found.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: dict[str, str | dict[str, Any]] | None = Field(default=None, min_length=1)
    key: tuple[str, ...] = ()
    mode: Mode = "cow"
    unknown: Unknown = "reject"
    inferred: bool = False

    def iceberg_schema(self) -> Schema | None:
        """The columns as Iceberg has them, the key's required; Invalid if there is no such type or column."""
        return None if self.columns is None else with_key(as_schema(self.columns), self.key)


@dataclass(frozen=True)
class StoredRule:
    """A rule as it was read. `tag` goes back with a change: the change fails if another came between."""

    table: str
    rule: Rule
    tag: str


def parse_rule(given: Any) -> Rule:
    """A rule from a mapping or JSON text; Invalid lists every problem."""
    try:
        return Rule.model_validate_json(given) if isinstance(given, str | bytes) else Rule.model_validate(given)
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, p['loc'])) or 'rule'}: {p['msg']}" for p in error.errors())
        raise Invalid(f"not a rule: {said}") from None


class Rules:
    """The rules of one lake. Each method is one request, `listed` one per rule; `set` also looks at the table."""

    def __init__(self, s3: Any, bucket: str, tables: Tables) -> None:
        self._s3, self._bucket, self._tables = s3, bucket, tables

    def find(self, table: str) -> StoredRule | None:
        """None if there is no rule for `<namespace>.<table>`."""
        try:
            with self._explained(table):
                answer = self._s3.get_object(Bucket=self._bucket, Key=_key(table))
                return StoredRule(table, parse_rule(answer["Body"].read()), answer["ETag"])
        except NotFound:
            return None

    def get(self, table: str) -> StoredRule:
        found = self.find(table)
        if found is None:
            raise NotFound(f"there is no rule for {table}: set one, or drop a file and it is inferred", subject=table)
        return found

    def set(self, table: str, rule: Rule, *, tag: str | None = None) -> StoredRule:
        """Keeps the rule. `tag`: of the rule it replaces; None: there must be none. Conflict if it is otherwise.

        Invalid if its columns or its key do not go with the table that is there.
        """
        self._check(table, rule)
        return self._put(table, rule, tag)

    def replace(self, table: str, rule: Rule) -> StoredRule:
        """`set`, whatever stands there now; a rule that was inferred or set before is gone."""
        found = self.find(table)
        return self.set(table, rule, tag=found.tag if found else None)

    def record(self, table: str, rule: Rule, *, tag: str | None = None) -> None:
        """Keeps an inferred rule, unless somebody set one meanwhile. `tag`: of an inferred one it replaces."""
        with suppress(Conflict):
            self._put(table, rule.model_copy(update={"inferred": True}), tag)

    def remove(self, table: str, *, tag: str | None = None) -> None:
        """NotFound if there is none, Conflict if it is not the one with the tag. The table stays as it is."""
        found = self.get(table)
        if tag is not None and tag != found.tag:
            raise _changed(table)
        with self._explained(table):
            self._s3.delete_object(Bucket=self._bucket, Key=_key(table), IfMatch=found.tag)

    def listed(self, namespace: str | None = None) -> list[StoredRule]:
        """All rules, or one namespace's, by table."""
        prefix = RULES if namespace is None else f"{RULES}{namespace}/"
        with self._explained(namespace or "rules"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
        names = [key.removeprefix(RULES).removesuffix(".json").replace("/", ".") for key in keys]
        return [found for name in sorted(names) if (found := self.find(name)) is not None]

    def _put(self, table: str, rule: Rule, tag: str | None) -> StoredRule:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        body = rule.model_dump_json(indent=2).encode()
        with self._explained(table):
            answer = self._s3.put_object(
                Bucket=self._bucket, Key=_key(table), Body=body, ContentType="application/json", **condition
            )
        return StoredRule(table, rule, answer["ETag"])

    def _check(self, table: str, rule: Rule) -> None:
        wanted = rule.iceberg_schema()
        try:
            schema = self._tables.load(table).schema()
        except NotFound:
            return
        with_key(schema, rule.key)
        have, want = _arrow(schema), _arrow(wanted) if wanted else pa.schema([])
        for field in want:
            if field.name not in have.names:
                raise Invalid(f"{table} has no column {field.name!r}: add it with alter first", subject=table)
            if have.field(field.name).type != field.type:
                is_now = have.field(field.name).type
                raise Invalid(f"{table}: column {field.name!r} is a {is_now}, not a {field.type}", subject=table)

    @contextmanager
    def _explained(self, table: str) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
            if code in ("NoSuchKey", "404"):
                raise NotFound(f"there is no rule for {table}", subject=table) from None
            if code in _CHANGED:
                raise _changed(table) from None
            raise explain(error, f"the rule of {table}") from error


def _arrow(schema: Schema) -> pa.Schema:
    return schema_to_pyarrow(schema, include_field_ids=False)


def _changed(table: str) -> Conflict:
    return Conflict(f"the rule of {table} was changed meanwhile: read it again, then change it", subject=table)


def _key(table: str) -> str:
    namespace, name = parse_table(table)
    return f"{RULES}{namespace}/{name}.json"
