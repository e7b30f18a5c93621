"""The units that a change touches, and their current facts: the input of the rules for an incremental update.

Pure over a reader of tables. For a full rebuild Spark SQL gathers the same facts for all units (spark_jobs.facts);
tests compare the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from catalog.notes.layers import TableSpec
from catalog.notes.medallion import CLIP

Row = dict[str, Any]
Change = tuple[Row | None, Row | None]
"""A row before and after the change; None for an insert's before and a delete's after."""
Changes = Mapping[str, Sequence[Change]]
"""The changes of each input, by its name in `layers`."""
Units = set[Any]

NOTES, CONCEPTS, GRAPH = "silver.processed_notes", "silver.extracted_concepts", "silver.knowledge_graph"
EVENTS, METRICS = "silver.user_events", "gold.note_metrics"
RAW_NOTES, RAW_CLIPS, RAW_EVENTS = "bronze.raw_notes", "bronze.raw_web_clips", "bronze.raw_imports"


class InputTables(Protocol):
    """The input tables at the snapshots of this run. A bronze table has one row per path, URL or event id."""

    def rows(
        self, table: str, columns: Sequence[str], column: str | None = None, among: Collection[Any] = ()
    ) -> list[Row]:
        """The rows whose `column` is `among` the values, of which None may be one; without a column, all rows."""
        ...


def touched_units(spec: TableSpec, changes: Changes, read: InputTables) -> Units:
    """The units of the table whose rows the changes of its inputs may affect. May contain more; that is only slower."""
    return _TOUCHED[spec.table](changes, read)


def gather(spec: TableSpec, units: Units, read: InputTables) -> list[Row]:
    """The facts of these units. A unit that no longer exists has none, and its rows are to be deleted."""
    return _GATHER[spec.table](units, read)


def _values(changes: Changes, table: str, column: str) -> Units:
    return {row[column] for change in changes.get(table, ()) for row in change if row is not None}


def _items(changes: Changes, table: str, column: str) -> Units:
    rows = (row for change in changes.get(table, ()) for row in change if row is not None)
    return {item for row in rows for item in row[column] or ()}


# Notes and clips.


def _touched_notes(changes: Changes, read: InputTables) -> Units:
    return _values(changes, RAW_NOTES, "path") | {_clip(url) for url in _values(changes, RAW_CLIPS, "url")}


def _clip(url: str | None) -> str | None:
    return None if url is None else CLIP + url


def _raw_notes(units: Units, read: InputTables) -> list[Row]:
    clips = {u.removeprefix(CLIP) for u in units if u is not None and u.startswith(CLIP)} | (units & {None})
    notes = {u for u in units if u is None or not u.startswith(CLIP)}
    facts = [
        {**row, "note_id": row["path"], "source": "note", "at": None}
        for row in read.rows(RAW_NOTES, _RAW_NOTE, "path", notes)
    ]
    for row in read.rows(RAW_CLIPS, _RAW_CLIP, "url", clips):
        facts.append(
            {
                **row,
                "note_id": _clip(row["url"]),
                "source": "clip",
                "links": [],
                "front_matter": None,
                "at": row["clipped_at"],
            }
        )
    return [{name: row.get(name) for name in RAW_FACTS} for row in facts]


_RAW_NOTE = ("path", "title", "tags", "links", "front_matter", "body")
_RAW_CLIP = ("url", "title", "tags", "body", "clipped_at")
RAW_FACTS = ("note_id", "source", "title", "tags", "links", "front_matter", "body", "at")
PROCESSED = ("note_id", "title", "text", "headings")


def _touched_ids(*tables: str) -> Callable[[Changes, InputTables], Units]:
    def touched(changes: Changes, read: InputTables) -> Units:
        return {note for table in tables for note in _values(changes, table, "note_id")}

    return touched


def _processed(units: Units, read: InputTables) -> list[Row]:
    return read.rows(NOTES, PROCESSED, "note_id", units)


def _with_phrases(units: Units, read: InputTables) -> list[Row]:
    phrases = defaultdict[str, list[tuple[float, str]]](list)
    for row in read.rows(CONCEPTS, ("note_id", "kind", "concept", "score"), "note_id", units):
        if row["kind"] == "phrase":
            phrases[row["note_id"]].append((-row["score"], row["concept"]))
    return [
        {**row, "concepts": [concept for _, concept in sorted(phrases[row["note_id"]])]}
        for row in _processed(units, read)
    ]


# Events.


def _touched_events(changes: Changes, read: InputTables) -> Units:
    return _values(changes, RAW_EVENTS, "event_id")


def _raw_events(units: Units, read: InputTables) -> list[Row]:
    columns = ("event_id", "user_id", "action", "note_id", "at")
    return read.rows(RAW_EVENTS, columns, "event_id", units)


# The graph.


def _touched_graph(changes: Changes, read: InputTables) -> Units:
    """A changed note's own unit, the notes that link to its name, and its tags, links and concepts."""
    ids = _values(changes, NOTES, "note_id") | _values(changes, CONCEPTS, "note_id")
    slugs = _values(changes, NOTES, "slug")
    # A name that was added or removed changes the targets of the links to it.
    linking = read.rows(NOTES, ("note_id", "link_slugs")) if slugs else []
    ids |= {row["note_id"] for row in linking if not slugs.isdisjoint(row["link_slugs"] or ())}
    units = {("note", note) for note in ids}
    units |= {("tag", tag) for tag in _items(changes, NOTES, "tags")}
    units |= {("missing", slug) for slug in slugs | _items(changes, NOTES, "link_slugs")}
    units |= {("concept", concept) for concept in _values(changes, CONCEPTS, "concept")}
    return {f"{kind}:{name}" for kind, name in units}


def _graph_facts(units: Units, read: InputTables) -> list[Row]:
    names = {kind: {name for k, _, name in (unit.partition(":") for unit in units) if k == kind} for kind in _KINDS}
    notes = read.rows(NOTES, ("note_id", "title", "quality", "slug", "link_slugs", "tags"))
    targets: dict[str, str] = {}
    for row in notes:
        targets[row["slug"]] = min(targets.get(row["slug"], row["note_id"]), row["note_id"])
    hubs = defaultdict[tuple[str, str], list[str]](list)
    for row in notes:
        for tag in names["tag"].intersection(row["tags"] or ()):
            hubs["tag", tag].append(row["note_id"])
        for slug in names["missing"].intersection(row["link_slugs"] or ()):
            if slug not in targets:
                hubs["missing", slug].append(row["note_id"])
    for row in read.rows(CONCEPTS, ("note_id", "concept"), "concept", names["concept"]):
        hubs["concept", row["concept"]].append(row["note_id"])
    mentions = defaultdict[str, set[str]](set)
    for row in read.rows(CONCEPTS, ("note_id", "concept"), "note_id", names["note"]):
        mentions[row["note_id"]].add(row["concept"])
    facts: list[Row] = [{"kind": kind, "name": name, "notes": members} for (kind, name), members in hubs.items()]
    for row in notes:
        if row["note_id"] in names["note"]:
            links = [{"slug": slug, "target": targets.get(slug)} for slug in row["link_slugs"] or ()]
            facts.append({**row, "kind": "note", "links": links, "concepts": sorted(mentions[row["note_id"]])})
    return facts


_KINDS = ("note", "tag", "missing", "concept")


# Gold.


def _touched_metrics(changes: Changes, read: InputTables) -> Units:
    ends = _values(changes, GRAPH, "source") | _values(changes, GRAPH, "target")
    notes = {end.removeprefix("note:") for end in ends if end is not None and end.startswith("note:")}
    return notes | _values(changes, NOTES, "note_id") | _values(changes, EVENTS, "note_id")


def _metric_facts(units: Units, read: InputTables) -> list[Row]:
    notes = read.rows(NOTES, ("note_id", "words", "reading_seconds", "quality", "tags"), "note_id", units)
    facts = {row["note_id"]: {**row, "tags": len(row["tags"] or ())} for row in notes}
    counts = defaultdict[str, dict[str, int]](lambda: defaultdict(int))
    related = defaultdict[str, set[str]](set)
    nodes = {f"note:{note}" for note in facts}
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
            counts[source]["concepts"] += 1
        elif edge["type"] == "links":
            counts[source]["missing_links" if target.startswith("missing:") else "links_out"] += 1
            counts[target]["links_in"] += 1
    for row in read.rows(EVENTS, ("note_id", "action", "at"), "note_id", set(facts)):
        note_counts = counts[f"note:{row['note_id']}"]
        note_counts["views"] += row["action"] == "viewed"
        note_counts["edits"] += row["action"] == "edited"
        fact = facts[row["note_id"]]
        fact["last_event_at"] = max(fact.get("last_event_at") or row["at"], row["at"])
    for note, fact in facts.items():
        fact |= {**counts[f"note:{note}"], "related_notes": len(related[f"note:{note}"])}
    return list(facts.values())


def _touched_insights(changes: Changes, read: InputTables) -> Units:
    nodes = (row for change in changes.get(GRAPH, ()) for row in change if row is not None)
    missing = {row["id"] for row in nodes if row["type"] == "missing"}
    return missing | {f"note:{note}" for note in _values(changes, METRICS, "note_id")}


def _insight_facts(units: Units, read: InputTables) -> list[Row]:
    notes = {unit.removeprefix("note:") for unit in units if unit.startswith("note:")}
    columns = ("note_id", "words", "quality", "links_out", "links_in", "missing_links", "related_notes", "views")
    facts = [_subject(row) for row in read.rows(METRICS, columns, "note_id", notes)]
    missing = {unit for unit in units if unit.startswith("missing:")}
    for row in read.rows(GRAPH, ("id", "label", "weight"), "id", missing):
        facts.append({"kind": "missing", "subject": row["id"], "name": row["label"], "weight": row["weight"]})
    return facts


def _subject(row: Row) -> Row:
    return {**row, "kind": "note", "subject": f"note:{row['note_id']}", "name": row["note_id"]}


_TOUCHED: dict[str, Callable[[Changes, InputTables], Units]] = {
    "processed_notes": _touched_notes,
    "extracted_concepts": _touched_ids(NOTES),
    "knowledge_graph": _touched_graph,
    "user_events": _touched_events,
    "note_metrics": _touched_metrics,
    "insights": _touched_insights,
    "summaries": _touched_ids(NOTES),
    "teaching_materials": _touched_ids(NOTES, CONCEPTS),
}
_GATHER: dict[str, Callable[[Units, InputTables], list[Row]]] = {
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
    """The columns that `touched_units` reads in a change of the table."""
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
