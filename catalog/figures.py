"""What the functions tell CloudWatch of themselves, by name: alarms and functions must mean the same."""

from __future__ import annotations

NAMESPACE = "Strandline"
"""Every figure has two dimensions: `service`, the function's name, and `stage`."""

FILES_FAILED = "FilesFailed"
"""Files that could not be dealt with; their messages come again."""

LEAVES = "Leaves"
LAG = "Lag"
"""Milliseconds from a commit to its leaf: the longest of a batch."""

UNSEQUENCED = "Unsequenced"
"""Tables that a sweep looked at and could not put into the timeline; not said when there is none."""

UNVERIFIED = "Unverified"
"""Proofs that did not hold, met by the sequencer or told to it by a verification; not said when all did."""
