"""The knowledge graph, a unit at a time: notes, tags, concepts, and names that are linked but not written yet.

Node ids are `<type>:<name>`, an edge's id is made of all that it joins. A unit's rows depend on that unit's facts
alone, so whoever knows which units changed can replace exactly their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

MOST_SHARED = 12
"""A concept of more notes than this joins no pairs: it is too common to mean anything, and pairs grow as squares."""


def note_unit(note: dict[str, Any]) -> list[dict[str, Any]]:
    """`note`: note_id, title, quality, tags, `links` as [{slug, target}] (target None: nobody wrote it), concepts."""
    me = f"note:{note['note_id']}"
    rows = [_node(me, "note", note["title"], note["quality"])]
    for link in _unique((link["slug"], link["target"]) for link in note["links"] or ()):
        target = f"missing:{link[0]}" if link[1] is None else f"note:{link[1]}"
        rows.append(_edge(me, "links", me, target, link[0]))
    rows += [_edge(me, "tagged", me, f"tag:{tag}", tag) for tag in _unique(note["tags"] or ())]
    rows += [_edge(me, "mentions", me, f"concept:{name}", name) for name in _unique(sorted(note["concepts"] or ()))]
    return _distinct(rows)


def hub_unit(kind: str, name: str, notes: Sequence[str]) -> list[dict[str, Any]]:
    """A tag, a concept or a missing name with the notes that have it; no notes, no rows."""
    who = sorted(set(notes))
    if not who:
        return []
    unit = f"{kind}:{name}"
    rows = [_node(unit, kind, name, float(len(who)))]
    if kind == "concept" and 2 <= len(who) <= MOST_SHARED:
        rows += [_edge(unit, "shares", f"note:{a}", f"note:{b}", name) for a, b in combinations(who, 2)]
    return rows


def nodes_of(facts: Mapping[str, Any]) -> set[str]:
    """The ids of all nodes that a unit's facts speak of: what its edges may join."""
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
