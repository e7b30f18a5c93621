"""A change feed as text: a line for each commit and each change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from catalog.changes import ChangeSet
from catalog.formats import json_value

SIGNS = {"INSERT": "+", "UPDATE": "~", "DELETE": "-"}


def text_lines(changes: ChangeSet, when: str) -> Iterator[str]:
    """The commit, then a line for each change; an update shows the key and the columns that differ."""
    commit, shown = changes.commit, len(changes)
    count = f"{shown} of {changes.count} changes" if shown < changes.count else f"{shown} changes"
    yield f"leaf {commit.index} · {when} · snapshot {commit.snapshot_id} · {count}"
    for change in changes.changes.to_pylist():
        yield f"  {SIGNS[change['op']]} {json.dumps(_summary(change, changes.key), ensure_ascii=False)}"


def _summary(change: dict[str, Any], key: Iterable[str]) -> Any:
    before, after = json_value(change["before"]), json_value(change["after"])
    if before is None or after is None:
        return after or before
    key_values = {name: after[name] for name in key}
    return key_values | {name: [before[name], after[name]] for name in after if before[name] != after[name]}
