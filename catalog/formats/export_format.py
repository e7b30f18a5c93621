"""The formats that rows are exported in. Imports nothing: the command's options name them."""

from __future__ import annotations

from enum import StrEnum


class ExportFormat(StrEnum):
    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"
