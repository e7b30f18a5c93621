"""The rules of the notes medallion: from one unit's facts to its rows. Pure, and the same in a function and in Spark.

A rule takes the facts of one unit (a note, a tag, an event …) and returns the unit's rows. So the same code rebuilds a
table from all units, and updates it incrementally for the units that changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from catalog.notes.concepts import extract_concepts
from catalog.notes.expectations import Reject, judge
from catalog.notes.graph import hub_unit, note_unit
from catalog.notes.layers import REJECTS, TableSpec
from catalog.notes.prose import parse_markdown, slug, words
from catalog.notes.summaries import summarise, teach

Rule = Callable[[dict[str, Any]], list[dict[str, Any]]]

CLIP = "clip:"
"""The note id of a web clip is this prefix and its URL, so it never equals the path of a note."""
RULES_VERSION = "2"
"""Must change with any rule: tables of another version are rebuilt, not updated incrementally."""

_WORDS_PER_MINUTE = 230
_HUB_LINKS = 5  # incoming links that make a note a hub
_TIME_KEYS = ("updated", "modified", "date", "created")


def process_note(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """A raw note or web clip as a row of `processed_notes`. Faults of the row are left to the expectations."""
    if raw["source"] == "note" and str(raw["note_id"]).startswith(CLIP):
        raise ValueError(f"a note's path must not begin with {CLIP!r}, which names web clips")
    body = raw.get("body") or ""
    document = parse_markdown(body)
    properties = _front_matter(raw.get("front_matter"))
    tags = [str(tag) for tag in raw.get("tags") or ()]
    links = [str(link) for link in raw.get("links") or ()]
    count = len(words(document.text))
    title = raw.get("title")
    return [
        {
            "note_id": raw.get("note_id"),
            "source": raw.get("source"),
            "title": title,
            "slug": slug(raw.get("note_id") or "") if raw.get("source") == "note" else slug(title or ""),
            "tags": tags,
            "links": links,
            "link_slugs": list(dict.fromkeys(slug(link) for link in links)),
            "urls": list(document.urls),
            "headings": list(document.headings),
            "text": document.text,
            "front_matter": raw.get("front_matter"),
            "noted_at": next((at for name in _TIME_KEYS if (at := _instant(properties.get(name)))), raw.get("at")),
            "words": count,
            "reading_seconds": round(count * 60 / _WORDS_PER_MINUTE),
            "quality": quality_score(
                count, len(document.headings), len(links) + len(document.urls), len(tags), bool(title)
            ),
        }
    ]


def quality_score(words_: int, headings: int, links: int, tags: int, titled: bool) -> float:
    """How useful a note is to a reader, 0 to 1. Length counts most, then links, headings, tags, a title.

    >>> quality_score(0, 0, 0, 0, False), quality_score(400, 3, 4, 2, True)
    (0.0, 1.0)
    """
    score = 0.4 * min(words_ / 200, 1) + 0.2 * min(links / 3, 1) + 0.15 * min(headings / 3, 1)
    return round(score + 0.15 * min(tags / 2, 1) + 0.1 * titled, 4)


def user_event(raw: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: raw.get(name) for name in ("event_id", "user_id", "action", "note_id", "at")}]


def graph_unit(unit: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a unit of the graph: of a note's facts, or of a hub's name and notes, by `kind`."""
    return note_unit(unit) if unit["kind"] == "note" else hub_unit(unit["kind"], unit["name"], unit["notes"] or ())


def metric(note: dict[str, Any]) -> list[dict[str, Any]]:
    counts = ("tags", "concepts", "links_out", "links_in", "missing_links", "related_notes", "views", "edits")
    copied = ("note_id", "words", "reading_seconds", "quality", "last_event_at")
    return [{**{name: note.get(name) for name in copied}, **{name: int(note.get(name) or 0) for name in counts}}]


def insight(subject: dict[str, Any]) -> list[dict[str, Any]]:
    """The insights into a note's metrics, or into a missing note."""
    rows: list[dict[str, Any]] = []

    def add(kind: str, severity: int, statement: str) -> None:
        id_ = f"{kind}|{subject['subject']}"
        row = {"id": id_, "subject": subject["subject"], "kind": kind, "severity": severity, "statement": statement}
        rows.append(row)

    if subject["kind"] == "missing":
        if subject["weight"] >= 2:
            add("wanted", 2, f"{int(subject['weight'])} notes link to “{subject['name']}”, which nobody has written.")
        return rows
    name = subject["name"]
    if subject["links_in"] + subject["links_out"] + subject["related_notes"] == 0:
        add("orphan", 2, f"“{name}” is linked to no other note and shares no concept with one.")
    if subject["links_in"] >= _HUB_LINKS:
        add("hub", 1, f"{subject['links_in']} notes link to “{name}”.")
    if subject["quality"] < 0.25:
        add("thin", 3, f"“{name}” has {subject['words']} words and little to hold on to.")
    if subject["missing_links"]:
        add("dangling", 1, f"“{name}” links to {subject['missing_links']} notes that are not written.")
    if subject["views"] >= 10 and subject["quality"] < 0.5:
        add("improve", 3, f"“{name}” was read {subject['views']} times, but is of low quality.")
    return rows


RULES: dict[str, Rule] = {
    "processed_notes": process_note,
    "extracted_concepts": extract_concepts,
    "knowledge_graph": graph_unit,
    "user_events": user_event,
    "note_metrics": metric,
    "insights": insight,
    "summaries": summarise,
    "teaching_materials": teach,
}


def apply_rule(spec: TableSpec, units: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[Reject]]:
    """The good rows of the units, and the rejects. A rule that fails on a unit rejects that unit, not the run."""
    rule, good, rejects = RULES[spec.table], list[dict[str, Any]](), list[Reject]()
    for unit in units:
        try:
            rows = rule(unit)
        except Exception as error:
            facts = json.dumps(unit, default=str, ensure_ascii=False)[:8192]
            name = str(unit.get(spec.unit) or unit.get("note_id") or unit.get("name"))
            rejects.append(Reject(name, "[]", f"the rule failed: {type(error).__name__}: {error}", facts))
            continue
        unit_good, unit_rejects = judge(rows, spec.expectations, spec.key, spec.unit, unit)
        good += unit_good
        rejects += unit_rejects
    return good, rejects


REJECT_COLUMN = "reject_reason"


def transform_batches(spec: TableSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For Spark's mapInArrow: units in; rows and rejects out, of which only rejects have a REJECT_COLUMN."""
    schema = staged_schema(spec)
    for batch in batches:
        good, rejects = apply_rule(spec, batch.to_pylist())
        rows = [*good, *(_staged(reject) for reject in rejects)]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def staged_schema(spec: TableSpec) -> pa.Schema:
    """The table's columns, then those of a reject; a row has values in the ones or the others."""
    return pa.schema([*spec.schema, *(REJECTS.schema.field(n).with_name(f"reject_{n}") for n in _REJECT)])


def reject_rows(spec: TableSpec, rejects: Iterable[Reject]) -> list[dict[str, Any]]:
    """The rows of the table `rejects`; of several rejects with one key the first."""
    rows = dict[tuple[str, str], dict[str, Any]]()
    for reject in rejects:
        row = {"table_name": spec.name, **{name: getattr(reject, name) for name in _REJECT}}
        rows.setdefault((reject.unit, reject.row_key), row)
    return list(rows.values())


_REJECT = ("unit", "row_key", "reason", "row")


def _staged(reject: Reject) -> dict[str, Any]:
    return {f"reject_{name}": getattr(reject, name) for name in _REJECT}


def _front_matter(text: str | None) -> dict[str, Any]:
    try:
        properties = json.loads(text) if text else {}
    except ValueError:
        return {}
    return properties if isinstance(properties, dict) else {}


def _instant(value: Any) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(value)) if value else None
    except ValueError:
        return None
    if time is None:
        return None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
