"""`strandline prove row`: writes a proof that a row was, or was not, in a table. `proof verify` checks it offline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from catalog import Invalid
from cli.lake_commands import add_command, opened

if TYPE_CHECKING:
    from catalog.changes import VerifiedRow

KEY_COLUMN_HELP = "A key column and its value, `id=4711`; one for each column of the key."


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Prove what a table had.", no_args_is_help=True)
    add_command(
        group,
        row,
        "prove row sales.orders --key id=4711",
        "prove row sales.orders --key region=DE --key id=7 --at 2026-03-01 --to order.tlog-proof",
        "prove row sales.orders --key id=4711 --no-values",
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
        data = proof.write()
        if to == Path("-"):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return
        path = to or Path(f"{table}.row.tlog-proof")
        path.write_bytes(data)
        verifier = str(lake.timeline.source.keyring().keys[-1][1])
        point, options = at or str(proof.index), "".join(f" --row {escape(option)}" for option in key)
        command = f"strandline proof verify {path} --table {table}{options} --at {point} --key {verifier}"
        exists = proof.count > 0
        answer: dict[str, Any] = {"table": table, "key": columns, "exists": exists, "index": proof.index}
        answer |= {"sequenced_ms": proof.leaf.sequenced_ms, "file": str(path), "bytes": len(data)}
        said = "has a row" if exists else "has no row"
        output.data(
            {**answer, "log_key": verifier},
            f"{path}: {len(data)} bytes. {table} {said} of this key at index {proof.index}.\nVerify it with: {command}",
        )


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
