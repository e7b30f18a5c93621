"""The rules of the notes medallion: from one unit's facts to its rows. Pure, and the same in a function and in Spark.

A rule takes a mapping and gives rows. What it is given is the fact sheet of one unit (a note, a tag, an event …), so
that a table can be made anew from all units, or mended for those that changed, by the very same code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from catalog.pipeline.concepts import extract_concepts
from catalog.pipeline.graph import hub_unit, note_unit
from catalog.pipeline.layers import REJECTS, TableSpec
from catalog.pipeline.markdown import parse_markdown, slug, words
from catalog.pipeline.quality import Reject, judge
from catalog.pipeline.summaries import summarise, teach

Rule = Callable[[dict[str, Any]], list[dict[str, Any]]]

CLIP = "clip:"
"""Before a clip's address, its note id: addresses and paths of notes never meet."""
RULES_VERSION = "2"
"""Changed with any rule: tables made by another version are made anew, not mended."""

_WORDS_PER_MINUTE = 230
_HUB = 5  # links to a note that make it one
_TIMES = ("updated", "modified", "date", "created")


def process_note(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """A raw note or web clip as a row of `processed_notes`. Faults of the row are left for the expectations."""
    if raw["source"] == "note" and str(raw["note_id"]).startswith(CLIP):
        raise ValueError(f"a note's path must not begin with {CLIP!r}, which names web clips")
    body = raw.get("body") or ""
    document = parse_markdown(body)
    said = _front_matter(raw.get("front_matter"))
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
            "noted_at": next((at for name in _TIMES if (at := _instant(said.get(name)))), raw.get("at")),
            "words": count,
            "reading_seconds": round(count * 60 / _WORDS_PER_MINUTE),
            "quality": quality_score(
                count, len(document.headings), len(links) + len(document.urls), len(tags), bool(title)
            ),
        }
    ]


def quality_score(words_: int, headings: int, links: int, tags: int, titled: bool) -> float:
    """0 to 1: how much a reader can do with a note. Length counts most, then links, structure, tags, a title.

    >>> quality_score(0, 0, 0, 0, False), quality_score(400, 3, 4, 2, True)
    (0.0, 1.0)
    """
    score = 0.4 * min(words_ / 200, 1) + 0.2 * min(links / 3, 1) + 0.15 * min(headings / 3, 1)
    return round(score + 0.15 * min(tags / 2, 1) + 0.1 * titled, 4)


def user_event(raw: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: raw.get(name) for name in ("event_id", "user_id", "action", "note_id", "at")}]


def graph_unit(unit: dict[str, Any]) -> list[dict[str, Any]]:
    """`kind` says whose unit it is: a note's facts, or a hub's name and notes."""
    return note_unit(unit) if unit["kind"] == "note" else hub_unit(unit["kind"], unit["name"], unit["notes"] or ())


def metric(note: dict[str, Any]) -> list[dict[str, Any]]:
    counts = ("tags", "concepts", "links_out", "links_in", "missing_links", "related_notes", "views", "edits")
    given = ("note_id", "words", "reading_seconds", "quality", "last_event_at")
    return [{**{name: note.get(name) for name in given}, **{name: int(note.get(name) or 0) for name in counts}}]


def insight(subject: dict[str, Any]) -> list[dict[str, Any]]:
    """What is worth telling about a note's metrics, or about a name that is linked but not written."""
    rows: list[dict[str, Any]] = []

    def say(kind: str, severity: int, statement: str) -> None:
        who = subject["subject"]
        rows.append({"id": f"{kind}|{who}", "subject": who, "kind": kind, "severity": severity, "statement": statement})

    if subject["kind"] == "missing":
        if subject["weight"] >= 2:
            say("wanted", 2, f"{int(subject['weight'])} notes link to “{subject['name']}”, which nobody has written.")
        return rows
    name = subject["name"]
    if subject["links_in"] + subject["links_out"] + subject["related_notes"] == 0:
        say("orphan", 2, f"“{name}” is linked to no other note and shares no concept with one.")
    if subject["links_in"] >= _HUB:
        say("hub", 1, f"{subject['links_in']} notes link to “{name}”.")
    if subject["quality"] < 0.25:
        say("thin", 3, f"“{name}” has {subject['words']} words and little to hold on to.")
    if subject["missing_links"]:
        say("dangling", 1, f"“{name}” links to {subject['missing_links']} notes that are not written.")
    if subject["views"] >= 10 and subject["quality"] < 0.5:
        say("improve", 3, f"“{name}” was read {subject['views']} times, but is of low quality.")
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
            named = str(unit.get(spec.unit) or unit.get("note_id") or unit.get("name"))
            rejects.append(Reject(named, "[]", f"the rule failed: {type(error).__name__}: {error}", facts))
            continue
        fine, bad = judge(rows, spec.expectations, spec.key, spec.unit, unit)
        good += fine
        rejects += bad
    return good, rejects


REJECT_COLUMN = "reject_reason"


def transform_batches(spec: TableSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For Spark's mapInArrow: units in, the table's rows and its rejects out, told apart by the reject's columns."""
    schema = staged_schema(spec)
    for batch in batches:
        good, rejects = apply_rule(spec, batch.to_pylist())
        rows = [*good, *(_staged(reject) for reject in rejects)]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def staged_schema(spec: TableSpec) -> pa.Schema:
    """The table's columns, then those of a reject; a row has one or the other."""
    return pa.schema([*spec.schema, *(REJECTS.schema.field(n).with_name(f"reject_{n}") for n in _REJECT)])


def reject_rows(spec: TableSpec, rejects: Iterable[Reject]) -> list[dict[str, Any]]:
    """Rows of the table of rejects; of several with one key the first stays."""
    found = dict[tuple[str, str], dict[str, Any]]()
    for one in rejects:
        row = {"table_name": spec.name, **{name: getattr(one, name) for name in _REJECT}}
        found.setdefault((one.unit, one.row_key), row)
    return list(found.values())


_REJECT = ("unit", "row_key", "reason", "row")


def _staged(one: Reject) -> dict[str, Any]:
    return {f"reject_{name}": getattr(one, name) for name in _REJECT}


def _front_matter(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _instant(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(value)) if value else None
    except ValueError:
        return None
    if found is None:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
