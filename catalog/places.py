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

VECTORS = "vectors/"
"""LanceDB's tables, `vectors/<table>.<column>.lance/`, and beside each its head."""

REQUESTS = "requests/"
"""Idempotency keys of the API, each bound to its request; gone after a week."""

RESULTS = "results/"
"""Answers too large for one response, fetched by a link; gone after a day."""

QUERIES = f"{RESULTS}queries/"
"""`results/queries/<id>/…`: queries that became jobs, their state and rows; gone after a day, as all results."""

HISTORY = "history/"
"""`history/queries/<shape>/…`: what was estimated of large queries and what happened; gone after ninety days."""

RULES = "rules/"
"""`rules/<namespace>/<table>.json`: how landed files become rows."""

MEDIA = "media/"
"""Binary media by the digest of their content; rows of metadata point here."""

INGESTED = "ingested/"
"""What became of each landed file, by the digest of its content."""

JOBS = "jobs/"
"""What jobs report, `jobs/<name>/<run id>.json`, and their logs."""
