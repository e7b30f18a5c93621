"""`strandline query`: runs one SELECT; writes its rows as a table, JSON, CSV or Parquet, and its receipt."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer
from rich.markup import escape

from catalog import Invalid, Unavailable
from catalog.core.column_names import check_column_names
from cli.lake_commands import add_command, opened
from cli.options import pairs
from cli.output import Output
from cli.times import AS_OF_HELP, past_point

if TYPE_CHECKING:
    import pyarrow as pa

    from catalog import Lake
    from catalog.query import Answer, QueryReceipt, QueryStatus

MAX_TABLE_ROWS = 1000
Engine = Literal["auto", "lambda", "spark"]


class RowsFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


def register(app: typer.Typer) -> None:
    add_command(
        app,
        query,
        'query "SELECT count(*) FROM silver.tides"',
        'query "SELECT * FROM silver.tides WHERE id = $id" --param id=7 --format json',
        'query "SELECT * FROM silver.tides" --as-of 2026-03-01 --format parquet --out tides.parquet',
        'query "SELECT sum(metres) FROM silver.tides" --verify',
        'query "SELECT * FROM silver.tides" --explain',
        "query \"UPDATE silver.tides SET metres = 3.2 WHERE station = 'Newlyn'\"",
        'query "SELECT * FROM silver.tides" --engine spark --wait 600',
        "query --result 4f1c2d",
    )


def query(
    context: typer.Context,
    sql: Annotated[str | None, typer.Argument(help="The statement; `-` reads it from stdin.")] = None,
    as_of: Annotated[str | None, typer.Option(help=AS_OF_HELP, callback=past_point, show_default="now")] = None,
    param: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for $NAME, 1=VALUE for $1; JSON or text.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Only show where it would run, and why.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check every object read against the timeline.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Read each table's newest commit, sequenced or not.")] = False,
    receipt: Annotated[bool, typer.Option("--receipt", help="Write the receipt to stderr.")] = False,
    format_: Annotated[RowsFormat | None, typer.Option("--format", help="The format of the rows.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the rows to this file.", show_default="stdout")] = None,
    engine: Annotated[Engine, typer.Option(help="auto chooses; lambda is this process, spark a job.")] = "auto",
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for a Spark job.")] = 3600.0,
    result: Annotated[str | None, typer.Option(help="Instead of SQL: the id of a query that runs as a job.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="With --result: cancel it and delete its rows.")] = False,
) -> None:
    """Run one statement. In a SELECT all tables are read at one index of the timeline: the newest, or --as-of."""
    if (sql is None) == (result is None) or (cancel and result is None):
        raise Invalid("pass either a SELECT, or --result ID of a query that runs as a job")
    text = sys.stdin.read() if sql == "-" else sql or ""
    with opened(context) as (lake, output):
        if result is not None and cancel:
            lake.queries.cancel(result)
            output.data({"id": result, "status": "cancelled"}, f"{result} is cancelled.")
            return
        plain = None if not (as_of or explain or verify) else _PLAIN
        if result is None and write_statement(lake, output, text, parameters(param or ()), refusal=plain):
            return
        options: Any = {"parameters": parameters(param or ()), "as_of": as_of, "fresh": fresh}
        if explain:
            explained = lake.queries.explain(text, **options)
            output.data(explained.as_dict(), escape("\n".join(explained.lines())))
            return
        from catalog.query import QueryStatus

        with output.progress("running …"):
            outcome = (
                lake.queries.status(result)
                if result is not None
                else lake.queries.ask(text, engine=engine, verify=verify, **options)
            )
            answer = await_answer(lake, outcome, wait) if isinstance(outcome, QueryStatus) else outcome
        if output.is_json and format_ is None and out is None:
            rows = list(json_rows(answer))
            output.data({"columns": answer.schema.names, "rows": rows, "receipt": answer.receipt.as_dict()})
            return
        write(answer, format_ or _by_suffix(out), out, output)
        if receipt or verify:
            typer.echo(receipt_line(answer.receipt), err=True)


_PLAIN = "reads the newest commits: leave out --as-of, --explain and --verify"


def write_statement(
    lake: Lake, output: Output, text: str, values: dict[str, Any] | None, *, refusal: str | None
) -> bool:
    """Runs a statement that writes, and shows what it did; False if it is a query. `refusal`: why none may run."""
    from catalog.query import Writes, is_write

    if not is_write(text):
        return False
    if refusal is not None:
        raise Invalid(f"a statement that writes {refusal}")
    done = Writes(lake.tables, partial(lake.queries.ask, parameters=values)).run(text)
    columns = ["statement", "table", "rows", "snapshot_id"]
    output.answer([[getattr(one, column) for column in columns] for one in done], columns)
    return True


def await_answer(lake: Lake, status: QueryStatus, wait: float) -> Answer:
    """The answer of a query that runs as a job. Unavailable, with its id, if it is not done after `wait` seconds."""
    if status.status == "running":
        status = lake.queries.wait(status.id, wait)
    if status.status == "running":
        raise Unavailable(
            f"query {status.id} runs as a job ({status.detail}): fetch it with `strandline query --result {status.id}`",
            subject=status.id,
        )
    return lake.queries.answer(status.id)


def parameters(texts: Sequence[str]) -> dict[str, Any] | None:
    """`n=5` is a number, `n="5"` and `n=five` are text, `n=null` is NULL."""
    return {name: _value(text) for name, text in pairs(texts, "=", "parameter: write name=value").items()} or None


def write(answer: Answer, format_: RowsFormat, out: Path | None, output: Output) -> int:
    """Writes the rows batch by batch; returns their number. A table shows at most MAX_TABLE_ROWS."""
    if format_ is RowsFormat.TABLE and out is None:
        return _show(answer, output)
    check_column_names(answer.schema.names, format_.value, "write --format csv")
    if out is not None:
        with out.open("wb") as sink:
            return _send(answer, format_, sink)
    if format_ is RowsFormat.PARQUET and sys.stdout.isatty():
        raise Invalid("Parquet cannot be shown in a terminal: add --out FILE, or redirect stdout")
    count = _send(answer, format_, sys.stdout.buffer)
    sys.stdout.buffer.flush()
    return count


def receipt_line(receipt: QueryReceipt) -> str:
    """The receipt in one line: the index, the route and cost, and what was verified."""
    at = f"index {receipt.index} of the timeline" if receipt.index is not None else f"no index ({receipt.fresh})"
    cost = "from memory" if receipt.cached else f"{receipt.requests} requests, {receipt.bytes} bytes"
    checked = (
        f"; {len(receipt.objects)} objects checked, {len(receipt.proofs)} commits proven" if receipt.verified else ""
    )
    return f"as of {at}; {receipt.route}, {cost}{checked}"


def values_of(rows: pa.RecordBatch | pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows as tuples, in column order."""
    return zip(*(column.to_pylist() for column in rows.columns), strict=True)


def json_rows(answer: Answer) -> Iterator[dict[str, Any]]:
    """The rows as JSON objects. Invalid, before anything is read, if two columns have the same name."""
    check_column_names(answer.schema.names, "json", "write --format csv")
    for batch in answer.batches():
        for row in batch.to_pylist():
            yield {name: _json(value) for name, value in row.items()}


def _show(answer: Answer, output: Output) -> int:
    rows: list[tuple[Any, ...]] = []
    count = 0
    for batch in answer.batches():
        count += batch.num_rows
        rows += values_of(batch.slice(0, MAX_TABLE_ROWS - len(rows))) if len(rows) < MAX_TABLE_ROWS else []
    output.answer([[value if value is None else _text(value) for value in row] for row in rows], answer.schema.names)
    more = f", the first {len(rows)} shown: --format csv writes all" if count > len(rows) else ""
    output.caption(f"[dim]{count} row{'' if count == 1 else 's'}{more}[/]")
    return count


def write_records(answer: Answer, output: Output) -> int:
    """Writes each row as lines `column | value`, as many rows as a table shows; returns their number."""
    count, width = 0, max((len(name) for name in answer.schema.names), default=0)
    for batch in answer.batches():
        for row in values_of(batch):
            count += 1
            if count > MAX_TABLE_ROWS:
                continue
            output.caption(f"[dim]{escape(f'-[ row {count} ]-')}[/]")
            for name, value in zip(answer.schema.names, row, strict=True):
                shown = "[dim]NULL[/]" if value is None else escape(_text(value))
                output.caption(f"{escape(name.ljust(width))} | {shown}")
    more = f", the first {MAX_TABLE_ROWS} shown: --format csv writes all" if count > MAX_TABLE_ROWS else ""
    output.caption(f"[dim]{count} row{'' if count == 1 else 's'}{more}[/]")
    return count


def _send(answer: Answer, format_: RowsFormat, sink: BinaryIO) -> int:
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    count = 0
    if format_ is RowsFormat.PARQUET:
        with pq.ParquetWriter(sink, answer.schema, compression="zstd") as writer:
            for batch in answer.batches():
                writer.write_batch(batch)
                count += batch.num_rows
    elif format_ is RowsFormat.JSON:
        for row in json_rows(answer):
            sink.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            count += 1
    else:
        with pc.CSVWriter(sink, answer.schema) as writer:
            for batch in answer.batches():
                writer.write_batch(batch)
                count += batch.num_rows
    return count


def _by_suffix(out: Path | None) -> RowsFormat:
    suffixes = {".json": RowsFormat.JSON, ".jsonl": RowsFormat.JSON, ".parquet": RowsFormat.PARQUET}
    return RowsFormat.TABLE if out is None else suffixes.get(out.suffix, RowsFormat.CSV)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    return "" if value is None else value.hex() if isinstance(value, bytes) else str(value)


def _json(value: Any) -> Any:
    """A value for JSON: decimals, which JSON would round, become text; NaN and infinity become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)
