"""The picture of the rooms: a Mermaid graph of who imports whom, counted from the imports."""

from __future__ import annotations

from collections import Counter

import grimp

OUTER = ("strandline", "cli", "functions", "spark_jobs", "infra")
INNER = ("lake", "query", "vectors", "ingest", "changes", "access", "tables", "timeline", "iceberg", "formats", "notes")
LAYERS = (
    ("outside", OUTER),
    ("the assembled lake", ("lake",)),
    ("queries, search and ingestion", ("query", "vectors", "ingest")),
    ("changes and access", ("changes", "access")),
    ("tables and the timeline", ("tables", "timeline")),
    ("reading Iceberg, files and notes", ("iceberg", "formats", "notes")),
)
"""From the top. `core` and `merkle` are below all of them and every room may import them: they are left out."""

_INTRODUCTION = """\
# Rooms

Each box is a room: a package with an explicit list of exports. The number at an arrow is how many modules of one room
import from another. `catalog.core` and `catalog.merkle` are below all rooms, every room may import them, and they are
left out. [The architecture](../architecture.md) says what each room holds."""


def page() -> str:
    lines = [_INTRODUCTION, "", "```mermaid", "flowchart TD"]
    for number, (title, rooms) in enumerate(LAYERS):
        lines += [f'  subgraph L{number}["{title}"]', "    direction LR"]
        lines += [f"    {room}[{_label(room)}]" for room in rooms]
        lines += ["  end"]
    for (importer, imported), count in sorted(_imports().items()):
        lines += [f"  {importer} -->|{count}| {imported}"]
    return "\n".join([*lines, "```"])


def _imports() -> Counter[tuple[str, str]]:
    """(room, room) -> how many modules of the first import from the second."""
    graph = grimp.build_graph("catalog", *OUTER, cache_dir=None)
    counts: Counter[tuple[str, str]] = Counter()
    for module in graph.modules:
        importer = _room(module)
        rooms = {_room(imported) for imported in graph.find_modules_directly_imported_by(module)}
        counts.update((importer, imported) for imported in rooms if importer and imported and imported != importer)
    return counts


def _room(module: str) -> str | None:
    first, _, rest = module.partition(".")
    if first in OUTER:
        return first
    name = rest.partition(".")[0] or "lake"
    return name if name in INNER else None


def _label(room: str) -> str:
    return room if room in OUTER else f"catalog.{room}"
