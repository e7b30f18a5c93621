"""Synthetic notes, generated from a seed and shaped like real ones: Zipf's words, clustered links, a few long notes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from catalog.formats import FormatLimits
from catalog.formats.markdown_note import parse_note

_SYLLABLES = "ba be da del fo ga ha il ka lo ma mi na no or pa ra ri sa so ta tel ti um va ve zo".split()  # noqa: SIM905
_TAGS = ("sea", "tide", "method", "people", "history", "idea", "todo", "meeting", "reading", "draft")
_PLACES = ("Brest", "Newlyn", "Cuxhaven", "Lisbon", "Bergen", "Saint Malo", "Hook of Holland", "Dover")
START = datetime(2026, 1, 1, tzinfo=UTC)


class NotesWorld:
    """`size` notes. A note's text depends only on the seed, its number and its version."""

    def __init__(self, size: int, seed: int = 7) -> None:
        self.size, self._seed = size, seed
        chance = random.Random(seed)
        self._words = ["".join(chance.choices(_SYLLABLES, k=chance.choice((2, 2, 3, 3, 4)))) for _ in range(6000)]
        self._weights = [1 / (rank + 3) for rank in range(len(self._words))]
        # Drawn once for all notes: a weighted choice is slow, slicing is not.
        self._stream = chance.choices(self._words, self._weights, k=200_000)

    def path(self, number: int) -> str:
        return f"{number % 37:02d}/note-{number:06d}.md"

    def note(self, number: int, version: int = 0) -> dict[str, Any]:
        return parse_note(self.text(number, version), self.path(number), FormatLimits())

    def text(self, number: int, version: int = 0) -> str:
        chance = random.Random(f"{self._seed}/{number}/{version}")
        title = " ".join(chance.choices(self._words[:800], k=3)).capitalize()
        tags = chance.sample(_TAGS, k=chance.choice((0, 1, 2, 3)))
        parts = [
            f"---\ntitle: {title}\ntags: [{', '.join(tags)}]\ndate: 2026-01-{1 + number % 28:02d}\n---\n# {title}\n"
        ]
        for section in range(chance.choice((1, 2, 2, 3, 5))):
            parts.append(f"\n## {chance.choice(self._words).capitalize()} {section}\n\n")
            parts += [self._paragraph(chance) + "\n\n" for _ in range(chance.choice((1, 1, 2)))]
        for _ in range(chance.choice((0, 1, 2, 3))):
            # Most links lead to neighbours, a few to the same popular notes, some nowhere.
            near = max(0, min(self.size + 3, number + chance.randint(-20, 20)))
            target = chance.choice((near, near, near, chance.randint(0, 30)))
            parts.append(f"See [[note-{target:06d}]].\n")
        return "".join(parts)

    def _paragraph(self, chance: random.Random) -> str:
        sentences = []
        for _ in range(chance.choice((2, 3, 4, 6))):
            start, length = chance.randrange(len(self._stream) - 30), chance.randint(6, 18)
            words = self._stream[start : start + length]
            if chance.random() < 0.2:
                words.insert(length // 2, f"in {chance.choice(_PLACES)}")
            sentences.append(" ".join(words).capitalize() + ".")
        return " ".join(sentences)

    def notes(self, numbers: range | list[int] | None = None, version: int = 0) -> Iterator[dict[str, Any]]:
        for number in range(self.size) if numbers is None else numbers:
            yield self.note(number, version)

    def events(self, count: int) -> list[dict[str, Any]]:
        chance = random.Random(f"{self._seed}/events")
        return [
            {
                "event_id": f"e{number}",
                "user_id": f"u{chance.randrange(50)}",
                "action": chance.choice(("viewed", "viewed", "viewed", "edited")),
                "note_id": self.path(min(self.size - 1, int(chance.expovariate(4 / self.size)))),
                "at": START + timedelta(minutes=number),
                "detail": None,
            }
            for number in range(count)
        ]
