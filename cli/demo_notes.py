"""The demo's data: some 200 notes about a stretch of coast, and the events of their readers.

A seeded generator builds them from the short texts in this folder, so every run has the same data.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path

QUESTION = "why is the water higher when the moon is full"
STATIONS = ("Brest", "Newlyn", "Dover", "Cuxhaven", "Aberdeen", "Reykjavik", "Leith", "Vigo")
PEOPLE = ("Ada", "Jonas", "Maren", "Tomas", "Ines", "Eilidh", "Rolf", "Sigrun")
WEATHER = ("clear and cold", "fog until ten", "a stiff westerly", "drizzle", "the first warm day", "thunder at sea")
HARBOUR = ("full of ice", "empty", "loud with gulls", "smelling of tar")
FIRST_DAY = date(2026, 1, 5)
DAYS, VISITS, MEETINGS, EVENTS = 100, 48, 32, 600
READERS = ("u-ada", "u-jonas", "u-maren", "u-guest")
_HERE = Path(__file__).parent


def demo_notes() -> dict[str, bytes]:
    """File name -> Markdown with front matter, tags and links: topics, a journal, visits to stations, meetings."""
    phrases = _Phrases(random.Random(1853))  # noqa: S311
    notes = dict(_topics())
    for number in range(DAYS):
        day = FIRST_DAY + timedelta(days=number)
        notes[f"journal/{day}.md"] = _journal(phrases, day)
    for number in range(VISITS):
        day = FIRST_DAY + timedelta(days=2 * number + 1)
        station = STATIONS[number % len(STATIONS)]
        notes[f"visits/{day}-{station.lower()}.md"] = _visit(phrases, day, station)
    for number in range(MEETINGS):
        day = FIRST_DAY + timedelta(days=3 * number + 2)
        notes[f"meetings/{day}.md"] = _meeting(phrases, day)
    return {name: text.encode() for name, text in notes.items()}


def demo_events(notes: list[str]) -> dict[str, bytes]:
    """File name -> the events of one reader, half of them as CSV, half as JSON lines: who did what to which note."""
    chance = random.Random(1912)  # noqa: S311
    start = datetime(2026, 4, 15, 8)
    files: dict[str, bytes] = {}
    for position, user in enumerate(READERS):
        rows = [
            {
                "event_id": f"{user}-{number:04}",
                "user_id": user,
                "action": chance.choices(("viewed", "edited", "shared"), (8, 2, 1))[0],
                "note_id": notes[min(int(chance.expovariate(6 / len(notes))), len(notes) - 1)],
                "at": f"{start + timedelta(minutes=chance.randrange(40_000)):%Y-%m-%dT%H:%M:%SZ}",
            }
            for number in range(EVENTS // len(READERS))
        ]
        files[f"{user}.{'csv' if position % 2 else 'jsonl'}"] = _csv(rows) if position % 2 else _json_lines(rows)
    return files


class _Phrases:
    """Random sentences of the journal's sections, their placeholders filled at random."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        text = (_HERE / "demo_journal.md").read_text()
        parts = re.split(r"^## (\w+)\n", text, flags=re.M)[1:]
        self._lines = {
            name: [line for line in body.splitlines() if line]
            for name, body in zip(parts[::2], parts[1::2], strict=True)
        }

    def some(self, section: str, count: int, station: str | None = None) -> list[str]:
        return [self._filled(line, station) for line in self.chance.sample(self._lines[section], count)]

    def _filled(self, line: str, station: str | None) -> str:
        pick: Callable[[tuple[str, ...]], str] = self.chance.choice
        person, other = self.chance.sample(PEOPLE, 2)
        filled = line.format(
            hour=pick(("five", "half past five", "six")),
            weather=pick(WEATHER),
            harbour=pick(HARBOUR),
            person=person,
            other=other,
            station=station or pick(STATIONS),
            metres=f"{self.chance.uniform(0.4, 6.8):.2f}",
            centimetres=self.chance.randrange(3, 60),
            millimetres=f"{self.chance.uniform(0.2, 1.9):.1f}",
        )
        return re.sub(r"(^|[.:] )([a-z])", lambda match: match[1] + match[2].upper(), filled)


def _topics() -> dict[str, str]:
    """One note for each heading of demo_notes.md."""
    notes = re.split(r"^(?=# )", (_HERE / "demo_notes.md").read_text(), flags=re.M)[1:]
    return {f"{note[2:].splitlines()[0].lower().replace(' ', '-')}.md": note for note in notes}


def _journal(phrases: _Phrases, day: date) -> str:
    body = [*phrases.some("morning", 1), *phrases.some("work", 2), *phrases.some("people", 1)]
    body += phrases.some("thought", 1) if phrases.chance.random() < 0.6 else []
    body += phrases.some("evening", 1)
    before = f"Yesterday: [[{day - timedelta(days=1)}]]." if day > FIRST_DAY else "A new book."
    todo = phrases.some("todo", phrases.chance.randrange(1, 4))
    front = _front(f"{day:%A}, {day:%d %B %Y}", day, ["journal"])
    return "\n".join([front, *(f"{line}\n" for line in body), before, "", "## To do", "", *todo, ""])


def _visit(phrases: _Phrases, day: date, station: str) -> str:
    reading = f"{phrases.chance.uniform(0.4, 6.8):.2f}"
    lines = [f"# Visit to {station}", "", "## Found", "", *phrases.some("work", 2, station), ""]
    lines += ["## Readings", "", "| gauge | metres |", "|---|---|", f"| {station} | {reading} |", ""]
    lines += [
        "## Before the next visit",
        "",
        *phrases.some("todo", 2, station),
        "",
        f"See [[{day}]] and [[tide-gauges]].",
    ]
    return "\n".join([_front(f"Visit to {station}", day, ["visit", "survey", station.lower()]), *lines, "#sea", ""])


def _meeting(phrases: _Phrases, day: date) -> str:
    people = phrases.chance.sample(PEOPLE, 3)
    lines = [f"# Meeting of {day:%d %B}", "", f"There: {', '.join(people)}.", "", "## Said", ""]
    lines += [f"- {line}" for line in (*phrases.some("people", 2), *phrases.some("thought", 1))]
    lines += ["", "## Decided", "", *phrases.some("todo", 3), "", f"Notes of the day: [[{day}]]. See [[incident]]."]
    return "\n".join([_front(f"Meeting of {day:%d %B}", day, ["meeting", "work"], people=people), *lines, ""])


def _front(title: str, day: date, tags: list[str], people: list[str] | None = None) -> str:
    lines = ["---", f'title: "{title}"', f"date: {day}", f"tags: [{', '.join(tags)}]"]
    return "\n".join([*lines, *([f"people: [{', '.join(people)}]"] if people else []), "---", ""])


def _csv(rows: list[dict[str, str]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _json_lines(rows: list[dict[str, str]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
