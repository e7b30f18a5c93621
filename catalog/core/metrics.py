"""The names of the functions' CloudWatch metrics, shared by the functions and the alarms."""

from __future__ import annotations

NAMESPACE = "Strandline"
"""Every metric has two dimensions: `service`, the function's name, and `stage`."""

FILES_FAILED = "FilesFailed"
"""Files that failed; their messages are delivered again."""

LEAVES = "Leaves"
LAG = "Lag"
"""Milliseconds from a commit to its leaf: the maximum of a batch."""

UNSEQUENCED = "Unsequenced"
"""Tables that a sweep could not sequence; not sent if there are none."""

UNVERIFIED = "Unverified"
"""Faults found by the sequencer or reported to it by a verification; not sent if there are none."""

WAL_FILES = "WalFiles"
"""Files of the write-ahead log of the timeline's database, garbage included; counted every 32 batches."""

READS_FAILED = "ReadsFailed"
"""Reads and proofs that the canary asked for and did not get; not sent if there are none."""
