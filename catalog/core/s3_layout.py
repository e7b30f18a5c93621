"""The prefixes of the lake's bucket: stacks grant permissions by them, and rooms write below them."""

from __future__ import annotations

LANDING = "landing/"
"""`landing/<namespace>/<table>/…`: files uploaded by users and programs, to be ingested."""

QUARANTINE = "quarantine/"
"""Rejected files, each with a report beside it."""

TABLES = "tables/"
"""Iceberg's data and metadata."""

ATTESTATIONS = "attest/"
"""`attest/<table-uuid>/<snapshot-id>`: digests of the objects that a commit wrote."""

ERASURES = "erasures/"
"""`erasures/<table-uuid>/<id>`: the record of each erasure, which its leaf covers."""

ERASE_REQUESTS = "erase-requests/"
"""`erase-requests/<table>/<id>.json`: what became of requests to erase rows, without keys; deleted after 90 days."""

TIMELINE = "timeline/"
"""The published timeline: checkpoint, keys, tiles. Publicly readable, except that a stage may keep its entries."""

TIMELINE_ENTRIES = f"{TIMELINE}tile/entries/"
"""The published entries: they name tables, with their counts and times."""

TIMELINE_STORE = "timeline.slatedb/"
"""The timeline's database. Only the sequencer writes here."""

TRANSACTIONS = "transactions/"
"""The records that decide the outcome of transactions over several tables."""

VECTORS = "vectors/"
"""LanceDB's tables, `vectors/<table>.<column>.lance/`, each with its head beside it."""

REQUESTS = "requests/"
"""Idempotency keys of the API, each with its request; deleted after REQUEST_DAYS."""

REQUEST_DAYS = 7
"""How long a request may be repeated with its idempotency key."""

RESULTS = "results/"
"""Results too large for one response, downloaded by presigned URL; deleted after a day."""

QUERIES = f"{RESULTS}queries/"
"""`results/queries/<id>/…`: query records with their status and rows; deleted after a day, as all results."""

HISTORY = "history/"
"""`history/queries/<shape>/…`: estimates and measurements of large queries; deleted after ninety days."""

RULES = "rules/"
"""`rules/<namespace>/<table>.json`: how landed files become rows of a table."""

MEDIA = "media/"
"""Binary media by the digest of their content; rows of metadata refer to them."""

INGESTED = "ingested/"
"""The ledger: the outcome of each landed file, by the digest of its content."""

JOBS = "jobs/"
"""`jobs/<name>/<run id>.json`: reports of jobs; `….state.json`: what a run is doing; and their logs."""

MESSAGES = "messages/"
"""`messages/<id>.json`: requests to the sequencer from processes that cannot reach its queue; deleted after a day."""

WITNESS = "witness/"
"""`witness/<key id>/<origin hash>`: the latest checkpoint of each log that this lake's witness cosigned."""
