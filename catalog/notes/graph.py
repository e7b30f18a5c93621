"""The knowledge graph, a unit at a time: notes, tags, concepts, and missing notes: names that are only linked to.

A node's id is `<type>:<name>`; an edge's id is its type, source, target and label. A unit's rows depend on that unit's
facts alone, so an incremental update replaces exactly the rows of the units that changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

MAX_SHARED = 12
"""A concept of more notes than this adds no `shares` edges: it is too common, and pairs grow with the square."""


def note_unit(note: dict[str, Any]) -> list[dict[str, Any]]:
    """`note`: note_id, title, quality, tags, `links` as [{slug, target}] (target None: a missing note), concepts."""
    unit = f"note:{note['note_id']}"
    rows = [_node(unit, "note", note["title"], note["quality"])]
    for slug, note_id in _unique((link["slug"], link["target"]) for link in note["links"] or ()):
        target = f"missing:{slug}" if note_id is None else f"note:{note_id}"
        rows.append(_edge(unit, "links", unit, target, slug))
    rows += [_edge(unit, "tagged", unit, f"tag:{tag}", tag) for tag in _unique(note["tags"] or ())]
    rows += [_edge(unit, "mentions", unit, f"concept:{name}", name) for name in _unique(sorted(note["concepts"] or ()))]
    return _distinct(rows)


def hub_unit(kind: str, name: str, notes: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a tag, a concept or a missing note with the notes that have it; none without notes."""
    note_ids = sorted(set(notes))
    if not note_ids:
        return []
    unit = f"{kind}:{name}"
    rows = [_node(unit, kind, name, float(len(note_ids)))]
    if kind == "concept" and 2 <= len(note_ids) <= MAX_SHARED:
        rows += [_edge(unit, "shares", f"note:{a}", f"note:{b}", name) for a, b in combinations(note_ids, 2)]
    return rows


def nodes_of(facts: Mapping[str, Any]) -> set[str]:
    """The ids of all nodes in a unit's facts: the possible ends of its edges."""
    if facts["kind"] != "note":
        return {f"{facts['kind']}:{facts['name']}", *(f"note:{note}" for note in facts["notes"] or ())}
    links = {(link["slug"], link["target"]) for link in facts["links"] or ()}
    return {
        f"note:{facts['note_id']}",
        *(f"missing:{slug}" if target is None else f"note:{target}" for slug, target in links),
        *(f"tag:{tag}" for tag in facts["tags"] or ()),
        *(f"concept:{name}" for name in facts["concepts"] or ()),
    }


def _node(unit: str, type_: str, label: str, weight: float) -> dict[str, Any]:
    return {
        "id": unit,
        "unit": unit,
        "kind": "node",
        "type": type_,
        "source": unit,
        "target": None,
        "label": label,
        "weight": float(weight),
    }


def _edge(unit: str, type_: str, source: str, target: str, label: str) -> dict[str, Any]:
    return {
        "id": f"{type_}|{source}|{target}|{label}",
        "unit": unit,
        "kind": "edge",
        "type": type_,
        "source": source,
        "target": target,
        "label": label,
        "weight": 1.0,
    }


def _distinct(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({row["id"]: row for row in rows}.values())


def _unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
