"""`strandline proof verify`: a proof file checked offline, with a public key and nothing of the lake.

Imports catalog.merkle and the command's own packages only: what an auditor runs must be quick to read and to install.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from catalog.errors import Invalid, Unverified
from catalog.merkle.note import VerifierKey
from catalog.merkle.proof import read, verify
from catalog.merkle.verify import ProofError
from cli.output import Output


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Check proofs offline.", no_args_is_help=True)
    group.command(
        "verify",
        epilog="Examples: `strandline proof verify 42.tlog-proof --key lake.example+1a2b3c4d+AQ…` · "
        "`strandline proof verify 42.tlog-proof --key @lake.vkey --entry leaf.json` · "
        "`strandline -o json proof verify - --key @lake.vkey`",
    )(verify_file)
    app.add_typer(group, name="proof")


def verify_file(
    context: typer.Context,
    file: Annotated[typer.FileBinaryRead, typer.Argument(help="A .tlog-proof file; `-` reads stdin.")],
    key: Annotated[
        list[str],
        typer.Option(
            "--key", help="The log's verifier key `name+keyid+base64`, or `@FILE` with one a line. Repeatable."
        ),
    ],
    entry: Annotated[
        typer.FileBinaryRead | None,
        typer.Option("--entry", help="The leaf's bytes; by default those that the proof file carries along."),
    ] = None,
    origin: Annotated[
        str | None, typer.Option(help="The log's name; by default the name of the key that signed.")
    ] = None,
) -> None:
    """Check that a leaf is in the log the key belongs to. Exit code 3 if the proof fails."""
    output: Output = context.obj
    data, keys = file.read(), verifier_keys(key)
    try:
        carried = read(data).extra
        leaf = entry.read() if entry is not None else carried
        if not leaf:
            raise Invalid("the proof file carries no entry along: name its file with --entry")
        found = verify(data, leaf, keys, origin=origin)
    except ProofError as error:
        raise Unverified(f"{file.name}: {error}", subject=file.name) from None
    checkpoint = found.checkpoint
    answer = {
        "verified": True,
        "origin": checkpoint.origin,
        "index": found.index,
        "size": checkpoint.size,
        "root": checkpoint.root.hex(),
        "entry": _shown(leaf),
    }
    said = (
        f"Leaf {found.index} is in {checkpoint.origin}, of {checkpoint.size} leaves.\n{leaf.decode(errors='replace')}"
    )
    output.data(answer, said.replace("[", r"\["))


def verifier_keys(given: list[str]) -> list[VerifierKey]:
    """The keys that `--key` options name, each by itself or in a file."""
    return [_parse(text) for one in given for text in _texts(one)]


def _texts(given: str) -> list[str]:
    if not given.startswith("@"):
        return [given]
    try:
        lines = Path(given[1:]).read_text().splitlines()
    except OSError as error:
        raise Invalid(f"the keys in {given[1:]} cannot be read: {error}") from None
    return [line.strip() for line in lines if line.strip()]


def _parse(text: str) -> VerifierKey:
    try:
        return VerifierKey.parse(text)
    except ValueError as error:
        raise Invalid(str(error)) from None


def _shown(leaf: bytes) -> object:
    try:
        return json.loads(leaf)
    except ValueError:
        return leaf.decode(errors="replace")
