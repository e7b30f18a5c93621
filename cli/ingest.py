"""`strandline ingest`: drop files and see what became of them, set the rules they go by, bring dead letters back."""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.errors import Invalid, NotFound, Unavailable
from cli.opened import add_command, counting, opened
from cli.words import columns

if TYPE_CHECKING:
    from catalog.ingest.ledger import Ledger, Record
    from catalog.ingest.rules import Rules, StoredRule
    from catalog.lake import Lake

COLUMNS = ("key", "state", "table", "rows", "snapshot_id", "duplicate_of", "reason", "at")
RULE_COLUMNS = ("table", "columns", "key", "mode", "unknown", "inferred")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_POLL_S = (0.05, 1.0)


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Files dropped into the lake, and what became of them.", no_args_is_help=True)
    add_command(group, put, "ingest put tides.jsonl bronze.tides", "ingest put notes/*.md bronze.notes --no-wait")
    add_command(group, status, "ingest status landing/bronze/tides/tides.jsonl", "-o json ingest status <SHA-256>")
    add_command(group, redrive, "ingest redrive --dry-run", "ingest redrive --limit 10")
    rules = typer.Typer(help="What a table's files should look like.", no_args_is_help=True)
    example = "ingest rule set bronze.tides --column id:long --column at:timestamptz --key id --unknown evolve"
    add_command(rules, set_rule, example, "ingest rule set bronze.tides --file rule.json", name="set")
    add_command(rules, get_rule, "ingest rule get bronze.tides", name="get")
    add_command(rules, list_rules, "ingest rule list", "ingest rule list bronze", name="list")
    add_command(rules, remove_rule, "ingest rule remove bronze.tides", name="remove")
    group.add_typer(rules, name="rule")
    app.add_typer(group, name="ingest")


Table = Annotated[str, typer.Argument(help="The table, <namespace>.<table>.")]


@dataclass(frozen=True)
class _Upload:
    file: str
    key: str
    digest: str
    source: str


def put(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="The files to drop.", exists=True, dir_okay=False)],
    table: Table,
    wait: Annotated[bool, typer.Option(help="Wait until it is known what became of each.")] = True,
    timeout: Annotated[float, typer.Option(min=1, help="How many seconds to wait at most.")] = 300,
) -> None:
    """Drop files into the landing zone, and see them into their table. Exit code 1 if one is refused."""
    with opened(context) as (lake, output):
        uploads = list(_upload(lake, files, table))
        if not wait:
            output.table([{"file": up.file, "key": up.key, "digest": up.digest} for up in uploads], ("key", "digest"))
            return
        with counting("waiting for") as tell:
            records = _await(_ledger(lake), uploads, timeout, tell)
        rows = [{"file": up.file, **_shown(record)} for up, record in zip(uploads, records, strict=True)]
        output.table(rows, ("file", "state", "rows", "snapshot_id", "reason"))
        if any(record.state not in ("committed", "duplicate") for record in records):
            raise typer.Exit(1)


def status(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="The SHA-256 of a file's bytes, or the key it landed under.")],
) -> None:
    """Where is my file now: every key it landed under, the table and snapshot its rows are in, or why they are not."""
    with opened(context) as (lake, output):
        records = _ledger(lake).find(file) if _DIGEST.fullmatch(file) else _find_by_key(lake, file)
        if not records:
            raise NotFound(f"nothing is known of {file} yet: it may still wait in the queue, or never have landed")
        output.table([_shown(record) for record in records], COLUMNS)


def redrive(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show them.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.", show_default="all")] = None,
) -> None:
    """Bring the dead letters of the landing queue back to it, to be ingested after all."""
    with opened(context) as (lake, output):
        from catalog.ingest.dead_letters import DeadLetters

        url = lake.settings.landed_queue_url
        if url is None:
            raise Invalid("the landing queue is not known: set STRANDLINE_LANDED_QUEUE_URL")
        letters = DeadLetters(lake.client("sqs"), url, _ledger(lake))
        with counting("redriving") as tell:
            found = []
            for letter in letters.look(limit) if dry_run else letters.redrive(limit):
                found.append({"message": letter.message_id, "keys": list(letter.keys), "reason": letter.reason})
                tell(str(len(found)))
        output.table(found, ("message", "keys", "reason"), title=f"{len(found)} {'found' if dry_run else 'sent back'}")


def set_rule(
    context: typer.Context,
    table: Table,
    column: Annotated[list[str] | None, typer.Option(help="name:type, as Iceberg calls it; once for each.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key column: rows replace those that have it.")] = None,
    mode: Annotated[str, typer.Option(help="cow, mor or hybrid, if the table is made for this rule.")] = "cow",
    unknown: Annotated[str, typer.Option(help="Columns it does not know: reject, ignore or evolve.")] = "reject",
    file: Annotated[Path | None, typer.Option(help="The whole rule as JSON instead; `-` is stdin.")] = None,
) -> None:
    """Say what a table's files should look like. Replaces the rule that is there; the table may come later."""
    with opened(context) as (lake, output):
        from catalog.ingest.rules import parse_rule

        if file is not None:
            if column or key:
                raise Invalid("say the rule by options or by --file, not both")
            rule = parse_rule(_text(file))
        else:
            given = {"columns": columns(column or []) or None, "key": key or [], "mode": mode, "unknown": unknown}
            rule = parse_rule(given)
        output.data(_shown_rule(_rules(lake).replace(table, rule)))


def get_rule(context: typer.Context, table: Table) -> None:
    """The rule of a table, set by somebody or inferred from its first files."""
    with opened(context) as (lake, output):
        output.data(_shown_rule(_rules(lake).get(table)))


def list_rules(
    context: typer.Context,
    namespace: Annotated[str | None, typer.Argument(help="Only this namespace's.")] = None,
) -> None:
    """All rules."""
    with opened(context) as (lake, output):
        output.table([_shown_rule(found) for found in _rules(lake).listed(namespace)], RULE_COLUMNS)


def remove_rule(context: typer.Context, table: Table) -> None:
    """Forget a table's rule; the table stays, and its columns are what counts."""
    with opened(context) as (lake, output):
        _rules(lake).remove(table)
        output.data({"removed": table})


def _upload(lake: Lake, files: list[Path], table: str) -> Iterator[_Upload]:
    from catalog.ingest.ledger import source_id
    from catalog.pipeline.landing import parse_key, parse_table
    from catalog.places import LANDING

    namespace, name = parse_table(table)
    for file in files:
        key = f"{LANDING}{namespace}/{name}/{file.name}"
        parse_key(key)
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            answer = lake.s3.put_object(Bucket=lake.settings.bucket, Key=key, Body=stream)
        yield _Upload(str(file), key, digest, source_id(key, answer.get("VersionId")))


def _await(ledger: Ledger, uploads: list[_Upload], timeout: float, tell: Any) -> list[Record]:
    """Each upload's record, in their order; Unavailable if one is still on its way when the time is over."""
    found: dict[str, Record] = {}
    deadline, pause = time.monotonic() + timeout, _POLL_S[0]
    while True:
        for upload in uploads:
            record = None if upload.source in found else ledger.of(upload.digest, upload.source)
            if record is not None and record.state != "failed":  # a failed one is tried again
                found[upload.source] = record
        missing = [upload.key for upload in uploads if upload.source not in found]
        if not missing:
            return [found[upload.source] for upload in uploads]
        if time.monotonic() > deadline:
            raise Unavailable(f"{len(missing)} files are still on their way after {timeout:.0f} s: {missing[0]} …")
        tell(f"{len(missing)} of {len(uploads)} files")
        time.sleep(pause)
        pause = min(2 * pause, _POLL_S[1])


def _find_by_key(lake: Lake, key: str) -> list[Record]:
    """By the digest of what stands under the key now; and why the lake failed on it, if it did."""
    from catalog.ingest.ledger import source_id, unread_digest
    from catalog.ingest.objects import LandedObject
    from catalog.pipeline.landing import Landed
    from catalog.pipeline.limits import Limits

    bucket, ledger = lake.settings.bucket, _ledger(lake)
    landed = LandedObject(lake.s3, Landed(bucket, key))
    digest = landed.digest(Limits())
    if digest is None and not landed.size:
        raise NotFound(f"there is nothing under {key}", subject=key)
    version = landed.version
    found = ledger.find(digest or unread_digest(key, version))
    own = [record for record in found if record.source == source_id(key, version)]
    failure = ledger.failure(key, version)
    return own or ([failure] if failure is not None else [])


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if file == Path("-") else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the rule {file} cannot be read: {error}") from None


def _ledger(lake: Lake) -> Ledger:
    from catalog.ingest.ledger import Ledger

    return Ledger(lake.s3, lake.settings.bucket)


def _rules(lake: Lake) -> Rules:
    from catalog.ingest.rules import Rules

    return Rules(lake.s3, lake.settings.bucket, lake.tables)


def _shown(record: Record) -> dict[str, Any]:
    return record.model_dump(mode="json", exclude_none=True)


def _shown_rule(found: StoredRule) -> dict[str, Any]:
    return {"table": found.table, **found.rule.model_dump(mode="json")}
