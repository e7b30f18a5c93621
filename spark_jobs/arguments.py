"""What the arguments of several jobs have in common."""

from __future__ import annotations

TABLE = r"^[a-z0-9_]{1,128}\.[a-z0-9_]{1,128}$"
"""`<database>.<table>`, of what Glue, Athena and Spark take without quoting; so it can stand in SQL as it is."""
