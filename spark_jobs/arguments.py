"""Patterns that the arguments of several jobs share."""

from __future__ import annotations

TABLE = r"^[a-z0-9_]{1,128}\.[a-z0-9_]{1,128}$"
"""`<database>.<table>`, in characters that Glue, Athena and Spark accept without quotes; so it is safe in SQL."""
