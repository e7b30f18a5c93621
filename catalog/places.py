"""Where things lie in the lake's bucket: stacks grant by these prefixes, and rooms write below them."""

from __future__ import annotations

LANDING = "landing/"
"""Files dropped by people and programs, `landing/<namespace>/<table>/…`."""

QUARANTINE = "quarantine/"
"""Files that could not be ingested, each with a report beside it."""

TABLES = "tables/"
"""Iceberg's data and metadata."""

ATTESTATIONS = "attest/"
"""`attest/<table-uuid>/<snapshot-id>`: digests of what a commit wrote."""

TIMELINE = "timeline/"
"""The timeline's public form: checkpoint, keys, tiles. Readable by anybody."""

TIMELINE_STORE = "timeline.slatedb/"
"""The timeline's database. Only the sequencer writes here."""

TRANSACTIONS = "transactions/"
"""The records that decide transactions over several tables."""
