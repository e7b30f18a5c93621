"""`strandline proof verify`: verifies a proof file offline, with a public key and without the lake.

Imports only catalog.merkle and the command's own packages, so that an auditor can read and install it quickly.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from catalog import Invalid, Unverified
from catalog.changes import is_row_proof
from catalog.core.point_in_time import Moment, TimelineIndex, parse_point_in_time
from catalog.core.strict_json import parse_strictly
from catalog.merkle.checkpoint import Checkpoint, open_checkpoint
from catalog.merkle.note import VerifierKey
from catalog.merkle.policy import Policy, PolicyError
from catalog.merkle.proof import read, verify
from catalog.merkle.verify import ProofError
from cli.output import Output
from cli.prove import RANGE_HELP, VALUES_HELP, key_set, row_answer, row_text, rows_answer, rows_text
from cli.times import relative_point

if TYPE_CHECKING:
    from catalog.timeline import AsOf

KEY_HELP = "The log's verifier key `name+keyid+base64`, or `@FILE` with one per line. Repeatable."
MAX_AGE_HELP = "With --policy: the witnesses must have cosigned in the last so many seconds."
POLICY_HELP = "A c2sp.org/tlog-policy file: the logs, and which witnesses must have cosigned."


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Verify proof files offline.", no_args_is_help=True)
    group.command(
        "verify",
        epilog="Examples: `strandline proof verify 42.tlog-proof --key lake.example+1a2b3c4d+AQ…` · "
        "`strandline proof verify 42.tlog-proof --key @lake.vkey --entry leaf.json` · "
        "`strandline proof verify 42.tlog-proof --policy lake.policy` · "
        "`strandline proof verify order.tlog-proof --table sales.orders --row id=4711 --at 42 --key @lake.vkey` · "
        "`strandline -o json proof verify - --key @lake.vkey`",
    )(verify_file)
    group.command(
        "as-of",
        epilog="Examples: `strandline proof as-of orders.as-of.json --table sales.orders --at 42 --key @lake.vkey` · "
        "`strandline proof as-of orders.as-of.json --table sales.orders --at 2026-03-01 --policy lake.policy` · "
        "`strandline proof as-of orders.as-of.json --table sales.orders --at 42 --key @lake.vkey --uuid UUID`",
    )(verify_as_of)
    app.add_typer(group, name="proof")


def verify_file(
    context: typer.Context,
    file: Annotated[typer.FileBinaryRead, typer.Argument(help="A .tlog-proof file; `-` reads stdin.")],
    key: Annotated[list[str], typer.Option("--key", help=KEY_HELP)] = [],  # noqa: B006
    policy: Annotated[Path | None, typer.Option(help=POLICY_HELP)] = None,
    entry: Annotated[
        typer.FileBinaryRead | None,
        typer.Option("--entry", help="The leaf's bytes.", show_default="those in the proof file"),
    ] = None,
    origin: Annotated[str | None, typer.Option(help="The log's name.", show_default="the name in the key")] = None,
    table: Annotated[str | None, typer.Option(help="Of a row's proof: the table, as you asked for it.")] = None,
    row: Annotated[list[str], typer.Option("--row", help=f"Of a row's proof. {VALUES_HELP}")] = [],  # noqa: B006
    ranges: Annotated[list[str], typer.Option("--range", help=f"Of an answer. {RANGE_HELP}")] = [],  # noqa: B006
    at: Annotated[str | None, typer.Option(help="Of a row's proof: the index or time, as you asked for it.")] = None,
    uuid: Annotated[str | None, typer.Option(help="Of a row's proof: the table's uuid.")] = None,
    kept: Annotated[
        Path | None,
        typer.Option("--checkpoint", help="Of a row's proof: the newest checkpoint you know. Required without --at."),
    ] = None,
    max_age: Annotated[int | None, typer.Option(help=MAX_AGE_HELP)] = None,
) -> None:
    """Verify that a leaf is in the log of the key, or of the policy. Exit code 3 if it is not.

    Of a proof of `prove row`: verify that the table had the row, or had none. Say which row: --table, --row and --at.
    Of one of `prove answer`: that the table had these rows, and no others. Say of which keys, with --row and --range.
    """
    output: Output = context.obj
    keys, trusted = trust(key, policy, max_age)
    data = file.read()
    if is_row_proof(_extra(data)) or table is not None or row or ranges:
        newest = None if kept is None else read_checkpoint(kept, keys, trusted, origin)
        _verify_row(output, data, (keys, trusted, origin), table, (row, ranges), at, uuid, newest)
        return
    try:
        included = read(data).extra
        leaf = entry.read() if entry is not None else included
        if not leaf:
            raise Invalid("the proof file does not include the leaf: pass its file with --entry")
        proof = verify(data, leaf, keys, origin=origin, policy=trusted)
        witnesses = None if trusted is None else sorted(trusted.cosigned_by(read(data).checkpoint))
    except ProofError as error:
        raise Unverified(f"{file.name}: {error}", subject=file.name) from None
    checkpoint = proof.checkpoint
    answer = {
        "verified": True,
        "origin": checkpoint.origin,
        "index": proof.index,
        "size": checkpoint.size,
        "root": checkpoint.root.hex(),
        **({} if witnesses is None else {"witnesses": witnesses}),
        "entry": _decoded(leaf),
    }
    summary = f"Leaf {proof.index} is in the log {checkpoint.origin}, which has {checkpoint.size} leaves."
    if witnesses:
        summary += f"\nThe checkpoint is cosigned by {', '.join(witnesses)}."
    output.data(answer, f"{summary}\n{leaf.decode(errors='replace')}".replace("[", r"\["))


def _verify_row(
    output: Output,
    data: bytes,
    trusted: tuple[list[VerifierKey], Policy | None, str | None],
    table: str | None,
    asked: tuple[list[str], list[str]],
    at: str | None,
    uuid: str | None,
    newest: Checkpoint | None,
) -> None:
    from catalog.changes import ExpectedRows, RowProof  # loads the timeline's formats, which other proofs do not need

    if table is None or not any(asked) or (at is None and newest is None):
        raise Invalid("this is the proof of a row: say which one you expect, with --table, --row, and --at")
    keys, policy, origin = trusted
    rows = key_set(*asked)
    point = {} if at is None else proven_point(at)
    expected = ExpectedRows(table, rows.keys(), **point, table_uuid=uuid, checkpoint=newest, ranged=rows.ranged)
    found = RowProof.read(data).verify_all(keys, origin, expected, policy=policy)
    if len(found.rows) == 1:
        output.data(row_answer(found.rows[0]), row_text(found.rows[0], found.rows[0].key))
    else:
        output.data(rows_answer(found), rows_text(found))


def _extra(data: bytes) -> bytes:
    try:
        return read(data).extra
    except ProofError:
        return b""  # which the verification says


def verify_as_of(
    context: typer.Context,
    file: Annotated[typer.FileBinaryRead, typer.Argument(help="A file of `timeline as-of`; `-` reads stdin.")],
    table: Annotated[str, typer.Option(help="The table's name, as you asked for it.")],
    at: Annotated[str, typer.Option(help="The index or time, as you asked for it.", callback=relative_point)],
    key: Annotated[list[str], typer.Option("--key", help=KEY_HELP)] = [],  # noqa: B006
    policy: Annotated[Path | None, typer.Option(help=POLICY_HELP)] = None,
    uuid: Annotated[
        str | None, typer.Option(help="The table's uuid: a new table under the same name has another.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A file with the newest checkpoint that you know. Required for a time after the last leaf."),
    ] = None,
    origin: Annotated[str | None, typer.Option(help="The log's name.", show_default="the name in the key")] = None,
    max_age: Annotated[int | None, typer.Option(help=MAX_AGE_HELP)] = None,
) -> None:
    """Verify which snapshot a table had at an index or time, or that there was no such table.

    Exit code 3 if the file does not prove it.
    """
    from catalog.timeline import read_as_of

    output: Output = context.obj
    keys, trusted = trust(key, policy, max_age)
    newest = None if checkpoint is None else read_checkpoint(checkpoint, keys, trusted, origin)
    as_of = read_as_of(file.read())
    as_of.verify(keys, origin, table=table, **proven_point(at), table_uuid=uuid, checkpoint=newest, policy=trusted)
    output.data({"verified": True, **as_of_answer(as_of)}, as_of_text(as_of))


def proven_point(at: str) -> _ProvenPoint:
    """The time or index that `at` spells; Invalid for a name or a snapshot, which the map of tables does not have."""
    point = parse_point_in_time(at)
    match point:
        case TimelineIndex(index):
            return {"index": index}
        case Moment():
            return {"time_ms": point.ms}
    raise Invalid(f"{at} is neither an index nor a time: only those are proven")


def as_of_answer(as_of: AsOf) -> dict[str, Any]:
    return {
        "table": as_of.table,
        "table_uuid": as_of.table_uuid,
        "snapshot_id": None if as_of.snapshot_id is None else str(as_of.snapshot_id),
        "index": as_of.index,
    }


def as_of_text(as_of: AsOf) -> str:
    if as_of.table_uuid is None:
        return f"There was no table {as_of.table} at index {as_of.index}."
    state = "no snapshot yet" if as_of.snapshot_id is None else f"snapshot {as_of.snapshot_id}"
    return f"{as_of.table} was the table {as_of.table_uuid}, with {state}, at index {as_of.index}."


class _ProvenPoint(TypedDict, total=False):
    index: int
    time_ms: int


def trust(keys: list[str], policy: Path | None, max_age: int | None = None) -> tuple[list[VerifierKey], Policy | None]:
    """What `--key` and `--policy` say to trust: the keys, or a policy that names its logs. Invalid for neither.

    `max_age`: how many seconds ago the policy's witnesses may have cosigned.
    """
    verifiers = verifier_keys(keys)
    if policy is None:
        if max_age is not None:
            raise Invalid("--max-age needs a --policy: only a witness's cosignature says how old a checkpoint is")
        if not verifiers:
            raise Invalid("say whom to trust: pass the log's --key, or a --policy FILE with its logs and witnesses")
        return verifiers, None
    try:
        trusted = Policy.parse(policy.read_bytes()).for_logs(verifiers)
        return [], trusted if max_age is None else trusted.recent(max_age, int(time.time()))
    except OSError as error:
        raise Invalid(f"the policy {policy} cannot be read: {error}") from None
    except PolicyError as error:
        raise Invalid(f"{policy}: {error}") from None


def read_checkpoint(file: Path, keys: list[VerifierKey], policy: Policy | None, origin: str | None) -> Checkpoint:
    """The checkpoint that a caller kept. Its signature is checked: a kept file may have been exchanged."""
    try:
        note = file.read_bytes()
        return open_checkpoint(note, keys, origin) if policy is None else policy.check(note, origin)
    except OSError as error:
        raise Invalid(f"the checkpoint {file} cannot be read: {error}") from None
    except ProofError as error:
        raise Unverified(f"{file}: {error}", subject=str(file)) from None


def verifier_keys(options: list[str]) -> list[VerifierKey]:
    """The keys of `--key` options: each is a key, or `@FILE` with one key per line."""
    return [_parse(text) for option in options for text in _texts(option)]


def _texts(option: str) -> list[str]:
    if not option.startswith("@"):
        return [option]
    try:
        lines = Path(option[1:]).read_text().splitlines()
    except OSError as error:
        raise Invalid(f"the keys in {option[1:]} cannot be read: {error}") from None
    return [line.strip() for line in lines if line.strip()]


def _parse(text: str) -> VerifierKey:
    try:
        return VerifierKey.parse(text)
    except ValueError as error:
        raise Invalid(str(error)) from None


def _decoded(leaf: bytes) -> object:
    try:
        return parse_strictly(leaf)
    except ValueError:
        return leaf.decode(errors="replace")
