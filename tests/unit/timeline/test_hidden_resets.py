"""A move of main to a snapshot that does not follow is a reset. A leaf that calls it anything else is a fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.table.snapshots import Snapshot

from catalog.timeline.verify.leaf_facts import is_hidden_reset
from tests.unit.timeline.test_replay import A, leaf


def snapshots(**parents: int | None) -> dict[int, Snapshot]:
    """Snapshot `s1` and so on, each with its parent."""
    return {
        int(name[1:]): Snapshot(
            **{"snapshot-id": int(name[1:]), "parent-snapshot-id": parent, "timestamp-ms": 1, "manifest-list": "x"}
        )
        for name, parent in parents.items()
    }


HISTORY = snapshots(s1=None, s2=1, s3=2, s4=None, s5=4, s8=None, s9=77)

STATED = {4: 77, 8: None}
"""Parents by the snapshots' own leaves. 77 expired, and so 4 lost the name of its parent."""


@pytest.mark.parametrize(
    ("operation", "parent", "target", "hidden"),
    [
        ("append", 2, 3, False),
        ("append", 1, 3, True),  # one commit is left out
        ("append", 1, 8, True),  # it names no parent
        ("overwrite", 1, 9, True),  # it names another one
        ("append", 77, 4, False),  # 77 expired, and took its name along
        ("append", 3, 4, True),
        ("branch", 3, 5, False),  # 77 expired, so nobody can tell
        ("append", None, 9, False),  # the first that the timeline has of the table
        ("branch", 1, 3, False),
        ("branch", 3, 1, True),
        ("branch", 3, 8, True),
        ("branch", 3, 9, False),  # 77 expired, so nobody can tell
        ("rollback", 3, 1, False),
        ("reset", 3, 8, False),
        ("transaction", 3, 8, False),
        ("reset", 3, None, False),
    ],
)
def test_what_moves_main_elsewhere_says_so(operation: str, parent: int, target: int, hidden: bool) -> None:
    assert is_hidden_reset(leaf(A, 1, operation, target, parent), HISTORY, STATED) == hidden
    assert not is_hidden_reset(replace(leaf(A, 1, operation, target, parent), operation="reset"), HISTORY, STATED)
