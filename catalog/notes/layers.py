"""The tables of the notes medallion: each one's columns, key, unit, inputs, expectations and retention.

Declarations only: `medallion` has the rules that compute the rows, and spark_jobs runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from catalog.core.errors import NotFound
from catalog.formats import MEDIA, NOTE
from catalog.notes.expectations import Expectation, Row, in_range, not_null, one_of, references, unique
from catalog.notes.graph import nodes_of

Layer = Literal["bronze", "silver", "gold"]

RETENTION_DAYS: Mapping[Layer, int | None] = {"bronze": 90, "silver": 365, "gold": None}
"""How long a layer's snapshots stay reachable by time travel; None: forever."""

NODE_TYPES = ("note", "tag", "concept", "missing")
EDGE_TYPES = ("links", "tagged", "mentions", "shares")
ACTIONS = ("created", "edited", "viewed", "shared", "deleted")
LENGTHS = ("short", "medium", "long")


@dataclass(frozen=True)
class TableSpec:
    """One table. Its rows are computed and replaced a unit at a time; `unit` is the column that names a row's unit.

    `row_days`: rows whose `time_column` is older than that are deleted.
    """

    table: str
    schema: pa.Schema
    key: tuple[str, ...]
    unit: str
    inputs: tuple[str, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    row_days: int | None = None
    time_column: str | None = None

    @property
    def name(self) -> str:
        return f"{self.layer}.{self.table}"

    @property
    def layer(self) -> Layer:
        if not self.inputs:
            return "bronze"
        return "silver" if self.table in _SILVER else "gold"


_SILVER = {"processed_notes", "extracted_concepts", "knowledge_graph", "user_events", "rejects"}
_TIME = pa.timestamp("us", tz="UTC")
_WORDS = pa.list_(pa.string())


def _own_note(facts: Row) -> tuple[str | None]:
    return (facts.get("note_id"),)


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


_OF_NOTE = references(["note_id"], _own_note, "silver.processed_notes")


RAW_NOTES = TableSpec("raw_notes", NOTE, (), "path")
RAW_WEB_CLIPS = TableSpec(
    "raw_web_clips",
    _schema(url=pa.string(), title=pa.string(), body=pa.string(), tags=_WORDS, clipped_at=_TIME),
    (),
    "url",
)
RAW_MEDIA = TableSpec("raw_media", MEDIA, (), "key")
RAW_IMPORTS = TableSpec(
    "raw_imports",
    _schema(
        event_id=pa.string(), user_id=pa.string(), action=pa.string(), note_id=pa.string(), at=_TIME, detail=pa.string()
    ),
    (),
    "event_id",
)

PROCESSED_NOTES = TableSpec(
    "processed_notes",
    _schema(
        note_id=pa.string(),
        source=pa.string(),
        title=pa.string(),
        slug=pa.string(),
        tags=_WORDS,
        links=_WORDS,
        link_slugs=_WORDS,
        urls=_WORDS,
        headings=_WORDS,
        text=pa.string(),
        front_matter=pa.string(),
        noted_at=_TIME,
        words=pa.int64(),
        reading_seconds=pa.int64(),
        quality=pa.float64(),
    ),
    ("note_id",),
    "note_id",
    ("bronze.raw_notes", "bronze.raw_web_clips"),
    (
        not_null("note_id", "source", "title", "slug", "text"),
        unique("note_id"),
        in_range("quality", 0.0, 1.0),
        in_range("words", 1, 1_000_000),
        one_of("source", ("note", "clip")),
    ),
)
EXTRACTED_CONCEPTS = TableSpec(
    "extracted_concepts",
    _schema(
        note_id=pa.string(),
        kind=pa.string(),
        concept=pa.string(),
        label=pa.string(),
        score=pa.float64(),
        count=pa.int64(),
        positions=pa.list_(pa.int64()),
    ),
    ("note_id", "kind", "concept"),
    "note_id",
    ("silver.processed_notes",),
    (
        not_null("note_id", "kind", "concept", "label"),
        unique("note_id", "kind", "concept"),
        one_of("kind", ("phrase", "entity")),
        in_range("count", 1, 1_000_000),
        in_range("score", 0.0, 1000.0),
        _OF_NOTE,
    ),
)
KNOWLEDGE_GRAPH = TableSpec(
    "knowledge_graph",
    _schema(
        id=pa.string(),
        unit=pa.string(),
        kind=pa.string(),
        type=pa.string(),
        source=pa.string(),
        target=pa.string(),
        label=pa.string(),
        weight=pa.float64(),
    ),
    ("id",),
    "unit",
    ("silver.processed_notes", "silver.extracted_concepts"),
    (
        not_null("id", "unit", "kind", "type", "source"),
        unique("id"),
        one_of("kind", ("node", "edge")),
        one_of("type", (*NODE_TYPES, *EDGE_TYPES)),
        in_range("weight", 0.0, 1e9),
        references(["source", "target"], nodes_of, "the graph's nodes"),
    ),
)
USER_EVENTS = TableSpec(
    "user_events",
    _schema(event_id=pa.string(), user_id=pa.string(), action=pa.string(), note_id=pa.string(), at=_TIME),
    ("event_id",),
    "event_id",
    ("bronze.raw_imports",),
    (
        not_null("event_id", "user_id", "action", "note_id", "at"),
        unique("event_id"),
        one_of("action", ACTIONS),
    ),
    row_days=365,
    time_column="at",
)
NOTE_METRICS = TableSpec(
    "note_metrics",
    _schema(
        note_id=pa.string(),
        words=pa.int64(),
        reading_seconds=pa.int64(),
        quality=pa.float64(),
        tags=pa.int64(),
        concepts=pa.int64(),
        links_out=pa.int64(),
        links_in=pa.int64(),
        missing_links=pa.int64(),
        related_notes=pa.int64(),
        views=pa.int64(),
        edits=pa.int64(),
        last_event_at=_TIME,
    ),
    ("note_id",),
    "note_id",
    ("silver.processed_notes", "silver.knowledge_graph", "silver.user_events"),
    (
        not_null("note_id", "words", "quality"),
        unique("note_id"),
        in_range("quality", 0.0, 1.0),
        in_range("links_in", 0, 1e9),
    ),
)
INSIGHTS = TableSpec(
    "insights",
    _schema(id=pa.string(), subject=pa.string(), kind=pa.string(), severity=pa.int64(), statement=pa.string()),
    ("id",),
    "subject",
    ("gold.note_metrics", "silver.knowledge_graph"),
    (not_null("id", "subject", "kind", "statement"), unique("id"), in_range("severity", 1, 3)),
)
SUMMARIES = TableSpec(
    "summaries",
    _schema(
        note_id=pa.string(), length=pa.string(), summary=pa.string(), sentences=pa.int64(), of_sentences=pa.int64()
    ),
    ("note_id", "length"),
    "note_id",
    ("silver.processed_notes",),
    (not_null("note_id", "length", "summary"), unique("note_id", "length"), one_of("length", LENGTHS), _OF_NOTE),
)
TEACHING_MATERIALS = TableSpec(
    "teaching_materials",
    _schema(
        note_id=pa.string(),
        kind=pa.string(),
        ordinal=pa.int64(),
        prompt=pa.string(),
        answer=pa.string(),
        concept=pa.string(),
    ),
    ("note_id", "kind", "ordinal"),
    "note_id",
    ("silver.processed_notes", "silver.extracted_concepts"),
    (
        not_null("note_id", "kind", "ordinal", "prompt", "answer"),
        unique("note_id", "kind", "ordinal"),
        one_of("kind", ("cloze", "outline")),
        _OF_NOTE,
    ),
)
REJECTS = TableSpec(
    "rejects",
    _schema(table_name=pa.string(), unit=pa.string(), row_key=pa.string(), reason=pa.string(), row=pa.string()),
    ("table_name", "unit", "row_key"),
    "unit",
    ("*",),
)

BRONZE = (RAW_NOTES, RAW_MEDIA, RAW_WEB_CLIPS, RAW_IMPORTS)
DERIVED = (
    PROCESSED_NOTES,
    EXTRACTED_CONCEPTS,
    KNOWLEDGE_GRAPH,
    USER_EVENTS,
    NOTE_METRICS,
    INSIGHTS,
    SUMMARIES,
    TEACHING_MATERIALS,
)
"""Ordered so that every table comes after its inputs."""


@dataclass(frozen=True)
class EmbeddingSpec:
    """A gold table that is a vector table: the embeddings of a text column of `source`, stored with `columns`."""

    table: str
    source: str
    column: str
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"gold.{self.table}"


NOTE_EMBEDDINGS = EmbeddingSpec(
    "note_embeddings", PROCESSED_NOTES.name, "text", ("title", "source", "words", "quality")
)

TABLES = {spec.name: spec for spec in (*BRONZE, *DERIVED, REJECTS)}


def spec_of(table: str) -> TableSpec:
    """The table by its name, `gold.insights` or `insights`. NotFound lists the names."""
    for name, spec in TABLES.items():
        if table in (name, spec.table):
            return spec
    raise NotFound(f"the notes pipeline has no table {table!r}: use one of {', '.join(TABLES)}", subject=table)


def retention_days(table: str) -> int | None:
    """How many days the snapshots of `<layer>.<table>` are kept; for any other database as many as for silver."""
    layer = table.partition(".")[0]
    return RETENTION_DAYS[layer] if layer in RETENTION_DAYS else RETENTION_DAYS["silver"]  # type: ignore[index]
