"""Extractive summaries and teaching material: sentences selected from a note; no text is generated."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from catalog.notes.layers import LENGTHS
from catalog.notes.prose import Sentence, sentences, words

SENTENCES = dict(zip(LENGTHS, (1, 3, 7), strict=True))
CARDS = 5
_MAX_SENTENCES = 400  # of a note that are examined
_COMMON_WORDS = (
    "a an and are as at be been but by can could do does for from had has have he her his how i if in into is it its "
    "may more most no not of on one only or other our she so some such than that the their them then there these they "
    "this to up was we were what when where which who will with would you your"
)
_COMMON = frozenset(_COMMON_WORDS.split())


def summarise(note: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of `summaries` for one row of `processed_notes`: one for each length that has more sentences than the
    one before."""
    candidates = sentences(note["text"] or "")[:_MAX_SENTENCES]
    weights = _weights(candidates)
    ranked = sorted(range(len(candidates)), key=lambda at: (-_rank(candidates, at, weights), at))
    rows, before = [], 0
    for length, count in SENTENCES.items():
        chosen = sorted(ranked[:count])
        if len(chosen) <= before:
            break
        before = len(chosen)
        rows.append(
            {
                "note_id": note["note_id"],
                "length": length,
                "summary": " ".join(candidates[at].text for at in chosen),
                "sentences": len(chosen),
                "of_sentences": len(candidates),
            }
        )
    return rows


def teach(note: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of `teaching_materials`: sentences with a key phrase left out, and the outline as a question.

    `note` is a row of `processed_notes` with `concepts`: its phrases, best first.
    """
    rows = list[dict[str, Any]]()
    candidates, used = sentences(note["text"] or "")[:_MAX_SENTENCES], set[int]()
    for concept in note["concepts"] or ():
        pattern = re.compile(r"\b" + r"\s+".join(map(re.escape, concept.split())) + r"\b", re.I)
        for at, sentence in enumerate(candidates):
            match = pattern.search(sentence.text)
            if match and at not in used and 5 <= len(words(sentence.text)) <= 60:
                used.add(at)
                prompt = sentence.text[: match.start()] + "____" + sentence.text[match.end() :]
                rows.append(_card(note["note_id"], "cloze", len(rows) + 1, prompt, match[0], concept))
                break
        if len(rows) == CARDS:
            break
    headings = [heading.lstrip("# ") for heading in note["headings"] or ()]
    if len(headings) > 1:
        prompt = f"Which points does “{note['title']}” make, in order?"
        rows.append(_card(note["note_id"], "outline", 1, prompt, "; ".join(headings), None))
    return rows


def _weights(candidates: list[Sentence]) -> Counter[str]:
    return Counter(word for s in candidates for word in {w.lower() for w in words(s.text)} if word not in _COMMON)


def _rank(candidates: list[Sentence], at: int, weights: Counter[str]) -> float:
    """The rank of a sentence: words that many sentences share count, normalized by length; the first gets a bonus."""
    own = {word.lower() for word in words(candidates[at].text)} - _COMMON
    if not own:
        return 0.0
    return round(sum(weights[word] for word in own) / (len(own) + 3) + (0.5 if at == 0 else 0.0), 6)


def _card(note_id: str, kind: str, ordinal: int, prompt: str, answer: str, concept: str | None) -> dict[str, Any]:
    return {
        "note_id": note_id,
        "kind": kind,
        "ordinal": ordinal,
        "prompt": prompt,
        "answer": answer,
        "concept": concept,
    }
