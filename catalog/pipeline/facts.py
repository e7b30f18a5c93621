"""Which units a change touches, and their facts as they stand now: what the rules need to mend a table.

Pure over a reader of tables. The same facts for all units at once are Spark SQL's to gather (spark_jobs.facts); the
tests hold the two against each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from catalog.pipeline.layers import TableSpec
from catalog.pipeline.medallion import CLIP

Row = dict[str, Any]
Change = tuple[Row | None, Row | None]
"""A row before and after; None where there was none."""
Changes = Mapping[str, Sequence[Change]]
"""By the input's name, as the layers spell it."""
Units = set[Any]

NOTES, CONCEPTS, GRAPH = "silver.processed_notes", "silver.extracted_concepts", "silver.knowledge_graph"
EVENTS, METRICS = "silver.user_events", "gold.note_metrics"
RAW_NOTES, RAW_CLIPS, RAW_EVENTS = "bronze.raw_notes", "bronze.raw_web_clips", "bronze.raw_imports"


class Reader(Protocol):
    """The inputs, each at the snapshot that this run has chosen; those of bronze have one row for each thing."""

    def rows(
        self, table: str, columns: Sequence[str], column: str | None = None, among: Collection[Any] = ()
    ) -> list[Row]:
        """Rows whose `column` is among the values (None is a value); without a column, all rows."""
        ...


def touched_units(spec: TableSpec, changes: Changes, read: Reader) -> Units:
    """The units of the table that the changes of its inputs may have changed; a few too many do no harm."""
    return _TOUCHED[spec.table](changes, read)


def gather(spec: TableSpec, units: Units, read: Reader) -> list[Row]:
    """The facts of these units. One that has none any more is not among them: its rows go."""
    return _GATHER[spec.table](units, read)


def _values(changes: Changes, table: str, column: str) -> Units:
    return {row[column] for change in changes.get(table, ()) for row in change if row is not None}


def _items(changes: Changes, table: str, column: str) -> Units:
    rows = (row for change in changes.get(table, ()) for row in change if row is not None)
    return {item for row in rows for item in row[column] or ()}


# Notes and clips.


def _touched_notes(changes: Changes, read: Reader) -> Units:
    return _values(changes, RAW_NOTES, "path") | {_clip(url) for url in _values(changes, RAW_CLIPS, "url")}


def _clip(url: str | None) -> str | None:
    return None if url is None else CLIP + url


def _raw_notes(units: Units, read: Reader) -> list[Row]:
    clips = {u.removeprefix(CLIP) for u in units if u is not None and u.startswith(CLIP)} | (units & {None})
    notes = {u for u in units if u is None or not u.startswith(CLIP)}
    found = [
        {**row, "note_id": row["path"], "source": "note", "at": None}
        for row in read.rows(RAW_NOTES, _RAW_NOTE, "path", notes)
    ]
    for row in read.rows(RAW_CLIPS, _RAW_CLIP, "url", clips):
        found.append(
            {
                **row,
                "note_id": _clip(row["url"]),
                "source": "clip",
                "links": [],
                "front_matter": None,
                "at": row["clipped_at"],
            }
        )
    return [{name: row.get(name) for name in RAW_FACTS} for row in found]


_RAW_NOTE = ("path", "title", "tags", "links", "front_matter", "body")
_RAW_CLIP = ("url", "title", "tags", "body", "clipped_at")
RAW_FACTS = ("note_id", "source", "title", "tags", "links", "front_matter", "body", "at")
PROCESSED = ("note_id", "title", "text", "headings")


def _touched_ids(*tables: str) -> Callable[[Changes, Reader], Units]:
    def touched(changes: Changes, read: Reader) -> Units:
        return {note for table in tables for note in _values(changes, table, "note_id")}

    return touched


def _processed(units: Units, read: Reader) -> list[Row]:
    return read.rows(NOTES, PROCESSED, "note_id", units)


def _with_phrases(units: Units, read: Reader) -> list[Row]:
    phrases = defaultdict[str, list[tuple[float, str]]](list)
    for row in read.rows(CONCEPTS, ("note_id", "kind", "concept", "score"), "note_id", units):
        if row["kind"] == "phrase":
            phrases[row["note_id"]].append((-row["score"], row["concept"]))
    return [
        {**row, "concepts": [concept for _, concept in sorted(phrases[row["note_id"]])]}
        for row in _processed(units, read)
    ]


# Events.


def _touched_events(changes: Changes, read: Reader) -> Units:
    return _values(changes, RAW_EVENTS, "event_id")


def _raw_events(units: Units, read: Reader) -> list[Row]:
    columns = ("event_id", "user_id", "action", "note_id", "at")
    return read.rows(RAW_EVENTS, columns, "event_id", units)


# The graph.


def _touched_graph(changes: Changes, read: Reader) -> Units:
    """A note's own unit, and whatever else its name, links, tags and concepts reach."""
    ids = _values(changes, NOTES, "note_id") | _values(changes, CONCEPTS, "note_id")
    slugs = _values(changes, NOTES, "slug")
    # A name that came or went changes where the links to it lead.
    linking = read.rows(NOTES, ("note_id", "link_slugs")) if slugs else []
    ids |= {row["note_id"] for row in linking if not slugs.isdisjoint(row["link_slugs"] or ())}
    units = {("note", note) for note in ids}
    units |= {("tag", tag) for tag in _items(changes, NOTES, "tags")}
    units |= {("missing", slug) for slug in slugs | _items(changes, NOTES, "link_slugs")}
    units |= {("concept", concept) for concept in _values(changes, CONCEPTS, "concept")}
    return {f"{kind}:{name}" for kind, name in units}


def _graph_facts(units: Units, read: Reader) -> list[Row]:
    wanted = {kind: {name for k, _, name in (unit.partition(":") for unit in units) if k == kind} for kind in _KINDS}
    notes = read.rows(NOTES, ("note_id", "title", "quality", "slug", "link_slugs", "tags"))
    targets: dict[str, str] = {}
    for row in notes:
        targets[row["slug"]] = min(targets.get(row["slug"], row["note_id"]), row["note_id"])
    hubs = defaultdict[tuple[str, str], list[str]](list)
    for row in notes:
        for tag in wanted["tag"].intersection(row["tags"] or ()):
            hubs["tag", tag].append(row["note_id"])
        for slug in wanted["missing"].intersection(row["link_slugs"] or ()):
            if slug not in targets:
                hubs["missing", slug].append(row["note_id"])
    for row in read.rows(CONCEPTS, ("note_id", "concept"), "concept", wanted["concept"]):
        hubs["concept", row["concept"]].append(row["note_id"])
    mentions = defaultdict[str, set[str]](set)
    for row in read.rows(CONCEPTS, ("note_id", "concept"), "note_id", wanted["note"]):
        mentions[row["note_id"]].add(row["concept"])
    facts: list[Row] = [{"kind": kind, "name": name, "notes": members} for (kind, name), members in hubs.items()]
    for row in notes:
        if row["note_id"] in wanted["note"]:
            links = [{"slug": slug, "target": targets.get(slug)} for slug in row["link_slugs"] or ()]
            facts.append({**row, "kind": "note", "links": links, "concepts": sorted(mentions[row["note_id"]])})
    return facts


_KINDS = ("note", "tag", "missing", "concept")


# Gold.


def _touched_metrics(changes: Changes, read: Reader) -> Units:
    ends = _values(changes, GRAPH, "source") | _values(changes, GRAPH, "target")
    notes = {end.removeprefix("note:") for end in ends if end is not None and end.startswith("note:")}
    return notes | _values(changes, NOTES, "note_id") | _values(changes, EVENTS, "note_id")


def _metric_facts(units: Units, read: Reader) -> list[Row]:
    notes = read.rows(NOTES, ("note_id", "words", "reading_seconds", "quality", "tags"), "note_id", units)
    found = {row["note_id"]: {**row, "tags": len(row["tags"] or ())} for row in notes}
    count = defaultdict[str, dict[str, int]](lambda: defaultdict(int))
    related = defaultdict[str, set[str]](set)
    nodes = {f"note:{note}" for note in found}
    columns = ("id", "kind", "type", "source", "target")
    edges = {
        row["id"]: row
        for side in ("source", "target")
        for row in read.rows(GRAPH, columns, side, nodes)
        if row["kind"] == "edge"
    }
    for edge in edges.values():
        source, target = edge["source"], edge["target"]
        if edge["type"] == "shares":
            related[source].add(target)
            related[target].add(source)
        elif edge["type"] == "mentions":
            count[source]["concepts"] += 1
        elif edge["type"] == "links":
            count[source]["missing_links" if target.startswith("missing:") else "links_out"] += 1
            count[target]["links_in"] += 1
    for row in read.rows(EVENTS, ("note_id", "action", "at"), "note_id", set(found)):
        seen = count[f"note:{row['note_id']}"]
        seen["views"] += row["action"] == "viewed"
        seen["edits"] += row["action"] == "edited"
        fact = found[row["note_id"]]
        fact["last_event_at"] = max(fact.get("last_event_at") or row["at"], row["at"])
    for note, fact in found.items():
        fact |= {**count[f"note:{note}"], "related_notes": len(related[f"note:{note}"])}
    return list(found.values())


def _touched_insights(changes: Changes, read: Reader) -> Units:
    nodes = (row for change in changes.get(GRAPH, ()) for row in change if row is not None)
    missing = {row["id"] for row in nodes if row["type"] == "missing"}
    return missing | {f"note:{note}" for note in _values(changes, METRICS, "note_id")}


def _insight_facts(units: Units, read: Reader) -> list[Row]:
    notes = {unit.removeprefix("note:") for unit in units if unit.startswith("note:")}
    columns = ("note_id", "words", "quality", "links_out", "links_in", "missing_links", "related_notes", "views")
    facts = [_subject(row) for row in read.rows(METRICS, columns, "note_id", notes)]
    missing = {unit for unit in units if unit.startswith("missing:")}
    for row in read.rows(GRAPH, ("id", "label", "weight"), "id", missing):
        facts.append({"kind": "missing", "subject": row["id"], "name": row["label"], "weight": row["weight"]})
    return facts


def _subject(row: Row) -> Row:
    return {**row, "kind": "note", "subject": f"note:{row['note_id']}", "name": row["note_id"]}


_TOUCHED: dict[str, Callable[[Changes, Reader], Units]] = {
    "processed_notes": _touched_notes,
    "extracted_concepts": _touched_ids(NOTES),
    "knowledge_graph": _touched_graph,
    "user_events": _touched_events,
    "note_metrics": _touched_metrics,
    "insights": _touched_insights,
    "summaries": _touched_ids(NOTES),
    "teaching_materials": _touched_ids(NOTES, CONCEPTS),
}
_GATHER: dict[str, Callable[[Units, Reader], list[Row]]] = {
    "processed_notes": _raw_notes,
    "extracted_concepts": _processed,
    "knowledge_graph": _graph_facts,
    "user_events": _raw_events,
    "note_metrics": _metric_facts,
    "insights": _insight_facts,
    "summaries": _processed,
    "teaching_materials": _with_phrases,
}


def changed_columns(table: str) -> Iterable[str]:
    """What `touched_units` looks at in a change of the table: the rest need not be kept."""
    return _CHANGED[table]


_CHANGED = {
    RAW_NOTES: ("path",),
    RAW_CLIPS: ("url",),
    RAW_EVENTS: ("event_id",),
    NOTES: ("note_id", "slug", "link_slugs", "tags"),
    CONCEPTS: ("note_id", "concept"),
    GRAPH: ("id", "type", "source", "target"),
    EVENTS: ("note_id",),
    METRICS: ("note_id",),
}
