"""Cannot be imported."""

from __future__ import annotations

raise RuntimeError("no such table: customers")
