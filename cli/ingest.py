"""`strandline ingest`: puts files into landing and shows their status, edits rules, redrives dead letters."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from catalog import Invalid, NotFound, Unavailable
from cli import ingest_files
from cli.ingest_files import find_files
from cli.lake_commands import add_command, counting, opened, progress_bar
from cli.options import columns

if TYPE_CHECKING:
    from catalog import Lake
    from catalog.ingest import Ledger, LedgerRecord, RuleStore, StoredRule

COLUMNS = ("key", "state", "table", "rows", "snapshot_id", "duplicate_of", "reason", "at")
RULE_COLUMNS = ("table", "columns", "key", "mode", "unknown", "csv", "inferred")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_POLL_S = (0.05, 1.0)


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Put files into the lake, and see what became of them.", no_args_is_help=True)
    add_command(group, put, "ingest put tides.jsonl bronze.tides", "ingest put vault/ bronze.notes --no-wait")
    add_command(group, status, "ingest status landing/bronze/tides/tides.jsonl", "-o json ingest status <SHA-256>")
    ingest_files.register(group)
    add_command(group, redrive, "ingest redrive --dry-run", "ingest redrive --limit 10")
    rules = typer.Typer(help="The rules by which files become rows of a table.", no_args_is_help=True)
    example = "ingest rule set bronze.tides --column id:long --column at:timestamptz --key id --unknown evolve"
    european = "ingest rule set bronze.prices --csv encoding=windows-1252 --csv decimal=, --csv thousands=."
    add_command(rules, set_rule, example, european, "ingest rule set bronze.tides --file rule.json", name="set")
    add_command(rules, get_rule, "ingest rule get bronze.tides", name="get")
    add_command(rules, list_rules, "ingest rule list", "ingest rule list bronze", name="list")
    add_command(rules, remove_rule, "ingest rule remove bronze.tides", name="remove")
    group.add_typer(rules, name="rule")
    app.add_typer(group, name="ingest")


Table = Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")]


@dataclass(frozen=True)
class _Upload:
    file: str
    key: str
    digest: str
    source: str


def put(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="Files, or directories of files.", exists=True)],
    table: Table,
    root: Annotated[
        Path | None,
        typer.Option(help="Name files by their path below this directory.", show_default="as typed", file_okay=False),
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until the status of each is final.")] = True,
    timeout: Annotated[float, typer.Option(min=1, help="At most this many seconds.")] = 300,
) -> None:
    """Put files into landing, and wait until their rows are in the table. Exit code 1 if a file is rejected.

    A file keeps the path that is typed; a file of a directory, its path below the directory. A file that is in landing
    already, with the same bytes, is not sent again: after an interruption, repeat the command. Empty files are skipped.
    """
    with opened(context) as (lake, output):
        by_key = _landing_keys(files, table, root)
        with progress_bar("sending", len(by_key)) as advance:
            uploads = list(_upload(lake, by_key, advance))
        if not wait:
            rows = [{"file": each.file, "key": each.key, "digest": each.digest} for each in uploads]
            output.table(rows, ("key", "digest"))
            return
        with progress_bar("ingesting", len(uploads)) as advance:
            records = _await(_ledger(lake), uploads, timeout, advance)
        rows = [{"file": each.file, **_as_row(record)} for each, record in zip(uploads, records, strict=True)]
        output.table(rows, ("file", "state", "rows", "snapshot_id", "reason"))
        if any(record.state not in ("committed", "duplicate", "empty") for record in records):
            raise typer.Exit(1)


def status(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="The SHA-256 of a file's bytes, or its landing/ key.")],
) -> None:
    """Show what became of a file: its keys, and the table and snapshot of its rows, or why it was rejected."""
    with opened(context) as (lake, output):
        from catalog.ingest import find_by_key

        by_digest = _DIGEST.fullmatch(file) is not None
        records = _ledger(lake).find(file) if by_digest else find_by_key(lake.s3, lake.settings.bucket, file)
        if not records:
            message = f"there is no record of {file} yet: it is still in the queue, or was never sent"
            raise NotFound(f"{message}. Try again, or send it with `strandline ingest put`")
        output.table([_as_row(record) for record in records], COLUMNS)


def redrive(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the messages.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many messages.", show_default="all")] = None,
) -> None:
    """Move the dead letters of the landing queue back to it, to be ingested again."""
    with opened(context) as (lake, output):
        from catalog.ingest import DeadLetters

        url = lake.settings.landed_queue_url
        if url is None:
            raise Invalid("the landing queue is not configured: set STRANDLINE_LANDED_QUEUE_URL")
        letters = DeadLetters(lake.client("sqs"), url, _ledger(lake))
        with counting("redriving") as progress:
            rows = []
            for letter in letters.peek(limit) if dry_run else letters.redrive(limit):
                rows.append({"message": letter.message_id, "keys": list(letter.keys), "reason": letter.reason})
                progress(str(len(rows)))
        title = f"{len(rows)} {'dead letters' if dry_run else 'sent back'}"
        output.table(rows, ("message", "keys", "reason"), title=title)


def set_rule(
    context: typer.Context,
    table: Table,
    column: Annotated[list[str] | None, typer.Option(help="name:type, with an Iceberg type; repeatable.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key column, to replace rows by; repeatable.")] = None,
    mode: Annotated[str, typer.Option(help="The mode of a table that the rule creates: cow, mor or hybrid.")] = "cow",
    unknown: Annotated[str, typer.Option(help="For columns not in the rule: reject, ignore or evolve.")] = "reject",
    csv: Annotated[
        list[str] | None,
        typer.Option(
            help="name=value, repeatable: how CSV files are written, where it cannot be detected. Names: delimiter, "
            "encoding (utf-8, utf-16, latin-1, windows-1252), quote, decimal, thousands, dates (dmy, mdy), "
            "nulls, skip_lines."
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Instead: a JSON file with the rule; `-` is stdin.")] = None,
) -> None:
    """Set the rule by which files become rows of a table. Replaces an existing rule; the table need not exist yet."""
    with opened(context) as (lake, output):
        from catalog.ingest import parse_rule

        if file is not None:
            if column or key or csv:
                raise Invalid("pass the rule by options or by --file, not both")
            rule = parse_rule(_text(file))
        else:
            fields = {"columns": columns(column or []) or None, "key": key or [], "mode": mode, "unknown": unknown}
            rule = parse_rule({**fields, "csv": _csv_options(csv or [])})
        output.data(_rule_row(_rules(lake).replace(table, rule)))


def get_rule(context: typer.Context, table: Table) -> None:
    """Show the rule of a table: set by a user, or inferred from its first files."""
    with opened(context) as (lake, output):
        output.data(_rule_row(_rules(lake).get(table)))


def list_rules(
    context: typer.Context,
    namespace: Annotated[str | None, typer.Argument(help="Only rules of this database.")] = None,
) -> None:
    """List the rules."""
    with opened(context) as (lake, output):
        output.table([_rule_row(rule) for rule in _rules(lake).all(namespace)], RULE_COLUMNS)


def remove_rule(context: typer.Context, table: Table) -> None:
    """Remove a table's rule. The table stays, and its own columns decide from then on."""
    with opened(context) as (lake, output):
        _rules(lake).remove(table)
        output.data({"removed": table})


def _landing_keys(paths: list[Path], table: str, root: Path | None) -> dict[str, Path]:
    """The landing key of each file. Invalid, before any upload, if two files have the same key, or there is none."""
    from catalog.core.s3_layout import LANDING
    from catalog.ingest import parse_key, parse_table

    namespace, name = parse_table(table)
    by_key: dict[str, Path] = {}
    for path, file in find_files(paths, root):
        key = f"{LANDING}{namespace}/{name}/{path}"
        parse_key(key)
        if key in by_key:
            raise Invalid(f"{by_key[key]} and {file} would both be {key}: name each file once", subject=key)
        by_key[key] = file
    if not by_key:
        raise Invalid(f"there is no file below {paths[0]}: hidden files are skipped", subject=str(paths[0]))
    return by_key


def _upload(lake: Lake, files: dict[str, Path], advance: Callable[[], None]) -> Iterator[_Upload]:
    from catalog.ingest import source_id

    for key, file in files.items():
        if file.stat().st_size:
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256")
                stream.seek(0)
                version = _landed_version(lake, key, digest) or _put_object(lake, key, stream, digest)
            yield _Upload(str(file), key, digest.hexdigest(), source_id(key, version))
        advance()


def _landed_version(lake: Lake, key: str, digest: Any) -> str | None:
    """The version of the object that has the key, if it has these bytes; S3 keeps the checksum it was sent with."""
    from botocore.exceptions import ClientError

    from catalog.core.aws_errors import is_missing, translate_aws_error

    try:
        found = lake.s3.head_object(Bucket=lake.settings.bucket, Key=key, ChecksumMode="ENABLED")
    except ClientError as error:
        if is_missing(error):
            return None
        raise translate_aws_error(error, key) from error
    version: str | None = found.get("VersionId")
    return version if found.get("ChecksumSHA256") == _checksum(digest) else None


def _put_object(lake: Lake, key: str, stream: BinaryIO, digest: Any) -> str | None:
    response = lake.s3.put_object(Bucket=lake.settings.bucket, Key=key, Body=stream, ChecksumSHA256=_checksum(digest))
    version: str | None = response.get("VersionId")
    return version


def _checksum(digest: Any) -> str:
    return base64.b64encode(digest.digest()).decode()


def _await(ledger: Ledger, uploads: list[_Upload], timeout: float, advance: Callable[[], None]) -> list[LedgerRecord]:
    """Each upload's ledger record, in their order; Unavailable if one is not processed before the timeout."""
    records: dict[str, LedgerRecord] = {}
    deadline, pause = time.monotonic() + timeout, _POLL_S[0]
    while True:
        for upload in uploads:
            record = None if upload.source in records else ledger.of(upload.digest, upload.source)
            if record is not None and record.state != "failed":  # the lake retries a failed file
                records[upload.source] = record
                advance()
        pending = [upload.key for upload in uploads if upload.source not in records]
        if not pending:
            return [records[upload.source] for upload in uploads]
        if time.monotonic() > deadline:
            message = f"{len(pending)} files are not processed after {timeout:.0f} s, among them {pending[0]}"
            raise Unavailable(f"{message}: see `strandline ingest status {pending[0]}`")
        time.sleep(pause)
        pause = min(2 * pause, _POLL_S[1])


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if file == Path("-") else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the rule {file} cannot be read: {error}") from None


def _ledger(lake: Lake) -> Ledger:
    from catalog.ingest import Ledger

    return Ledger(lake.s3, lake.settings.bucket)


def _rules(lake: Lake) -> RuleStore:
    from catalog.ingest import RuleStore

    return RuleStore(lake.s3, lake.settings.bucket, lake.tables)


def _as_row(record: LedgerRecord) -> dict[str, Any]:
    return record.model_dump(mode="json", exclude_none=True)


def _csv_options(pairs: list[str]) -> dict[str, Any]:
    """`delimiter=;` and the like; `nulls` may come several times, and a tab may be written as `\\t`."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise Invalid(f"--csv {pair} is not name=value: write --csv delimiter=';', for example")
        if name == "nulls":
            options.setdefault(name, []).append(value)
        else:
            options[name] = "\t" if value == "\\t" else value
    return options


def _rule_row(stored: StoredRule) -> dict[str, Any]:
    return {"table": stored.table, **stored.rule.model_dump(mode="json")}
