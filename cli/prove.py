"""`strandline prove row` and `prove answer`: write proofs of rows in a table. `proof verify` checks them offline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from catalog import Invalid
from cli.lake_commands import add_command, opened

if TYPE_CHECKING:
    from catalog.changes import KeySet, RowProof, VerifiedRow, VerifiedRows
    from catalog.lake import Lake

KEY_COLUMN_HELP = "A key column and its value, `id=4711`; one for each column of the key."
VALUES_HELP = "A key column and a value, `id=4711`; several values of a column are an IN list."
RANGE_HELP = "A key column and a range of whole numbers or days, `id=100..150`: both ends are included."


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Prove what a table had.", no_args_is_help=True)
    add_command(
        group,
        row,
        "prove row sales.orders --key id=4711",
        "prove row sales.orders --key region=DE --key id=7 --at 2026-03-01 --to order.tlog-proof",
        "prove row sales.orders --key id=4711 --no-values",
    )
    add_command(
        group,
        answer,
        "prove answer sales.orders --key id=4711 --key id=4712",
        "prove answer sales.orders --key region=DE --range id=100..150 --at 2026-03-01 --to orders.tlog-proof",
    )
    app.add_typer(group, name="prove")


def row(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table's name, DATABASE.TABLE.")],
    key: Annotated[list[str], typer.Option("--key", help=KEY_COLUMN_HELP)],
    at: Annotated[
        str | None, typer.Option(help="An index, or a time: `42`, `2026-03-01T12:00:00Z`.", show_default="now")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="The file to write; `-` is stdout.", show_default="TABLE.row.tlog-proof")
    ] = None,
    values: Annotated[bool, typer.Option(help="Show the row in the proof, and not only its digest.")] = True,
) -> None:
    """Write a proof that a table had a row of this key at an index or time, or had none."""
    columns = key_columns(key)
    with opened(context) as (lake, output):
        proof = lake.prove_row(table, columns, at, values=values)
        written = _written(lake, proof, table, at, to or Path(f"{table}.row.tlog-proof"), key, [])
        if written is None:
            return
        facts, text = written
        said = "has a row" if proof.count else "has no row"
        output.data(
            {"table": table, "key": columns, "exists": proof.count > 0, **facts},
            f"{facts['file']}: {facts['bytes']} bytes. {table} {said} of this key at index {proof.index}.\n{text}",
        )


def answer(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table's name, DATABASE.TABLE.")],
    key: Annotated[list[str], typer.Option("--key", help=VALUES_HELP)] = [],  # noqa: B006
    ranges: Annotated[list[str], typer.Option("--range", help=RANGE_HELP)] = [],  # noqa: B006
    at: Annotated[
        str | None, typer.Option(help="An index, or a time: `42`, `2026-03-01T12:00:00Z`.", show_default="now")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="The file to write; `-` is stdout.", show_default="TABLE.answer.tlog-proof")
    ] = None,
    values: Annotated[bool, typer.Option(help="Show the rows in the proof, and not only their digests.")] = True,
) -> None:
    """Write a proof of all rows that a table had of some keys at an index or time: those, and no others."""
    asked = key_set(key, ranges)
    with opened(context) as (lake, output):
        proof = lake.prove_answer(table, asked, at, values=values)
        written = _written(lake, proof, table, at, to or Path(f"{table}.answer.tlog-proof"), key, ranges)
        if written is None:
            return
        facts, text = written
        count = len(asked.keys())
        output.data(
            {"table": table, "asked": count, "rows": proof.count, **facts},
            f"{facts['file']}: {facts['bytes']} bytes. {table} has {proof.count} rows of {count} keys at index "
            f"{proof.index}, and no others of them.\n{text}",
        )


def _written(
    lake: Lake, proof: RowProof, table: str, at: str | None, path: Path, key: list[str], ranges: list[str]
) -> tuple[dict[str, Any], str] | None:
    """Writes the file; what was written, and the command that verifies it. None after writing to stdout."""
    data = proof.write()
    if path == Path("-"):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return None
    path.write_bytes(data)
    verifier = str(lake.timeline.source.keyring().keys[-1][1])
    options = [*(f" --row {one}" for one in key), *(f" --range {one}" for one in ranges)]
    asked = f"--table {table}{escape(''.join(options))} --at {at or proof.index}"
    facts = {"index": proof.index, "sequenced_ms": proof.leaf.sequenced_ms, "file": str(path), "bytes": len(data)}
    return {**facts, "log_key": verifier}, f"Verify it with: strandline proof verify {path} {asked} --key {verifier}"


def key_set(options: list[str], ranges: list[str]) -> KeySet:
    """The keys of `column=value` and `column=first..last` options; Invalid for anything else."""
    from catalog.changes import KeySet

    values, spans = dict[str, list[Any]](), dict[str, tuple[Any, Any]]()
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name or value in values.get(name, ()):
            raise Invalid(f"{option!r} is not a key column with its value, once: write it as id=4711")
        values.setdefault(name, []).append(value)
    for option in ranges:
        name, equals, span = option.partition("=")
        first, dots, last = span.partition("..")
        if not (equals and name and first and dots and last) or name in spans:
            raise Invalid(f"{option!r} is not a range of a key column, once: write it as id=100..150")
        spans[name] = (first, last)
    return KeySet(values, spans)


def key_columns(options: list[str]) -> dict[str, str]:
    """The key of `column=value` options; Invalid for anything else."""
    columns = dict[str, str]()
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name or name in columns:
            raise Invalid(f"{option!r} is not a key column with its value, once: write it as id=4711")
        columns[name] = value
    return columns


def row_answer(row: VerifiedRow) -> dict[str, Any]:
    return {
        "verified": True,
        "exists": row.exists,
        "table": row.table,
        "table_uuid": row.table_uuid,
        "snapshot_id": None if row.snapshot_id is None else str(row.snapshot_id),
        "index": row.index,
        "sequenced_ms": row.sequenced_ms,
        "digest": None if row.digest is None else row.digest.hex(),
        "row": None if row.values is None else {name: _plain(value) for name, value in row.values.items()},
        "origin": row.checkpoint.origin,
        "size": row.checkpoint.size,
    }


def rows_answer(found: VerifiedRows) -> dict[str, Any]:
    present = [row for row in found.rows if row.exists]
    facts = row_answer(found.rows[0])
    for name in ("exists", "digest", "row"):
        del facts[name]
    rows = [{"key": row.key, **{name: row_answer(row)[name] for name in ("digest", "row")}} for row in present]
    for row in rows:
        row["key"] = {name: _plain(value) for name, value in row["key"].items()}
    return {**facts, "asked": len(found.rows), "rows": rows}


def rows_text(found: VerifiedRows) -> str:
    present = [row for row in found.rows if row.exists]
    head = f"{found.table} (uuid {found.table_uuid}) had {len(present)} rows of {len(found.rows)} keys at index"
    lines = [f"{head} {found.index}, and no others of them."]
    for row in present:
        shown = row.values if row.values is not None else {**row.key, "digest": (row.digest or b"").hex()}
        lines.append("  " + ", ".join(f"{name}: {_plain(value)}" for name, value in shown.items()))
    return escape("\n".join(lines))


def row_text(row: VerifiedRow, key: dict[str, str]) -> str:
    where = ", ".join(f"{name} = {value}" for name, value in key.items())
    said = "had a row" if row.exists else "had no row"
    lines = [f"{row.table} (uuid {row.table_uuid}) {said} with {where} at index {row.index}."]
    if row.digest is not None:
        lines.append(f"The row's digest is {row.digest.hex()}.")
    lines += [f"  {name}: {_plain(value)}" for name, value in (row.values or {}).items()]
    return escape("\n".join(lines))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)
