"""Rows as a text table and as an HTML table, both bounded in rows, columns and cell length."""

from __future__ import annotations

from html import escape
from typing import Any

import pyarrow as pa

MAX_ROWS = 20
MAX_COLUMNS = 20
MAX_CELL = 60


def as_text(table: pa.Table, title: str) -> str:
    """A title line, then columns padded to their width; control characters are shown escaped."""
    names, lines = _cells(table)
    if not names:
        return title
    widths = [max(len(row[column]) for row in [names, *lines]) for column in range(len(names))]
    rows = [names, ["-" * width for width in widths], *lines]
    grid = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join([title, *grid])


def as_html(table: pa.Table, title: str) -> str:
    names, lines = _cells(table)
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in lines)
    return f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def size(table: pa.Table) -> str:
    """`3 rows x 2 columns`, and how many of them are shown if not all are."""
    rows, columns = table.num_rows, table.num_columns
    text = f"{rows:,} row{'' if rows == 1 else 's'} x {columns:,} column{'' if columns == 1 else 's'}"
    shown = [f"{MAX_ROWS} rows"] * (rows > MAX_ROWS) + [f"{MAX_COLUMNS} columns"] * (columns > MAX_COLUMNS)
    return f"{text}; the first {' and '.join(shown)} shown" if shown else text


def _cells(table: pa.Table) -> tuple[list[str], list[list[str]]]:
    columns = [column.slice(0, MAX_ROWS).to_pylist() for column in table.columns[:MAX_COLUMNS]]
    names = [_cell(name) for name in table.column_names[:MAX_COLUMNS]]
    return names, [[_cell(value) for value in row] for row in zip(*columns, strict=True)]


def _cell(value: Any) -> str:
    text = "NULL" if value is None else str(value)[: MAX_CELL + 1]
    text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"
