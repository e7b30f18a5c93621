"""What strangers send at once, beside the statements: bodies for `POST /tables/{t}/rows`, and files for `landing/`."""

from __future__ import annotations

from collections.abc import Iterator

from tests.worlds.hostile_files import hostile_files, hostile_streams

ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
LANDED, TABLES = 60, 4


def hostile_bodies() -> Iterator[tuple[str, str, bytes]]:
    """Media type, label and bytes of each body: at least two hundred."""
    for label, data in hostile_streams().items():
        yield ARROW, label, data
    for label, (name, data) in hostile_files().items():
        if name.endswith(".parquet"):
            yield PARQUET, label, data
        elif name.endswith((".json", ".jsonl")):
            yield "application/json", label, b'{"rows":' + data.strip() + b"}"


def landed_files() -> Iterator[tuple[str, bytes]]:
    """Key and bytes of every sixth hostile file, for four tables that only these make."""
    chosen = [case for number, case in enumerate(hostile_files().values()) if number % 6 == 0][:LANDED]
    for number, (name, data) in enumerate(chosen):
        yield f"landing/bronze/load{number % TABLES}/{number}{name}", data
