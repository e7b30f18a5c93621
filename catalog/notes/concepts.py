"""Key phrases and entities of a note, with their positions in its prose.

Phrases are ranked by TextRank; entities are dates, and names recognized by their capitals inside a sentence. There
is no model and no dictionary to load: the same note gives the same concepts on any machine.
"""

from __future__ import annotations

import re
from typing import Any

from catalog.notes.prose import sentences

PHRASES = 12
ENTITIES = 20
_LIMIT = 200_000  # characters of prose that are examined
_NAME = re.compile(r"\b[A-ZÀ-ÖØ-Þ][\w'’-]+(?:\s+(?:of|de|van|von|the)?\s*[A-ZÀ-ÖØ-Þ][\w'’-]+){0,4}")
_DATE = re.compile(r"\b(?:1[5-9]|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])\b")


def extract_concepts(note: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of `extracted_concepts` for one row of `processed_notes`. A few milliseconds a note."""
    text = (note["text"] or "")[:_LIMIT]
    return [*_phrases(note["note_id"], text), *_entities(note["note_id"], text)]


def _phrases(note_id: str, text: str) -> list[dict[str, Any]]:
    import rapid_textrank  # type: ignore[import-untyped]  # imported late: declarations do not need it

    if len(text.split()) < 5:
        return []
    rows: dict[str, dict[str, Any]] = {}
    # More than PHRASES: some are not words of the text, or are equal but for case.
    for phrase in rapid_textrank.extract_keywords(text, top_n=PHRASES * 2, language="en"):
        concept = " ".join(phrase.text.lower().split())
        positions = _positions(text, concept)
        if len(concept) > 2 and positions and concept not in rows:
            rows[concept] = _row(note_id, "phrase", concept, phrase.text, round(phrase.score, 4), positions)
    ranked = sorted(rows.values(), key=lambda row: (-row["score"], row["concept"]))
    return ranked[:PHRASES]


def _entities(note_id: str, text: str) -> list[dict[str, Any]]:
    occurrences: dict[str, tuple[str, list[int]]] = {}
    for sentence in sentences(text):
        for match in [*_NAME.finditer(sentence.text), *_DATE.finditer(sentence.text)]:
            label = " ".join(match[0].split())
            # The first word of a sentence is always capitalised: alone it is not evidence of a name.
            if match.start() == 0 and " " not in label and not label[0].isdigit():
                continue
            occurrences.setdefault(label.casefold(), (label, []))[1].append(sentence.start + match.start())
    rows = [
        _row(note_id, "entity", name, label, float(len(positions)), positions)
        for name, (label, positions) in occurrences.items()
        if len(name) > 2
    ]
    return sorted(rows, key=lambda row: (-row["count"], row["concept"]))[:ENTITIES]


def _positions(text: str, phrase: str) -> list[int]:
    pattern = r"\b" + r"\s+".join(map(re.escape, phrase.split())) + r"\b"
    return [match.start() for match in re.finditer(pattern, text, re.I)]


def _row(note_id: str, kind: str, concept: str, label: str, score: float, positions: list[int]) -> dict[str, Any]:
    return {
        "note_id": note_id,
        "kind": kind,
        "concept": concept,
        "label": label,
        "score": score,
        "count": len(positions),
        "positions": sorted(positions),
    }
