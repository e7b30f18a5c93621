"""The page of the command: every subcommand with its arguments and options, from `--help`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from typer import Context
from typer.main import get_command

from cli.main import app
from tools.reference.markdown import code, paragraph, table

_DEFAULT = re.compile(r"\s*\[(?P<notes>[^\[\]]*(?:default|required|env var|x>=|<=x)[^\[\]]*)\]$")


def page() -> str:
    top: Any = get_command(app)
    lines = ["# The command", "", paragraph(top.help), ""]
    lines += [
        "Options of every command, written before its name; `-o` also after it:",
        "",
        *_parameters(top, "strandline"),
    ]
    lines += [paragraph(top.epilog), "See [errors](errors.md).", ""]
    for name, command in top.commands.items():
        lines += _section(command, name)
    return "\n".join(lines)


def _section(command: Any, path: str) -> Iterator[str]:
    yield from [f"## {path}", ""]
    if not hasattr(command, "commands"):
        yield from _command(command, path)
        return
    yield from [paragraph(command.help or ""), "", *_parameters(command, f"strandline {path}")]
    for name, inner in command.commands.items():
        yield from [f"### {path} {name}", "", *_command(inner, f"{path} {name}")]


def _command(command: Any, path: str) -> Iterator[str]:
    context = Context(command, info_name=f"strandline {path}")
    usage = " ".join(piece.replace("{", "").replace("}", "") for piece in command.collect_usage_pieces(context))
    yield from ["```text", f"strandline {path} {usage}", "```", "", *_help(command.help or ""), ""]
    yield from _parameters(command, f"strandline {path}")
    if command.epilog:
        yield from [paragraph(command.epilog), ""]


def _help(text: str) -> list[str]:
    return ["\n\n".join(paragraph(part) for part in text.split("\n\n"))]


def _parameters(command: Any, path: str) -> list[str]:
    context = Context(command, info_name=path)
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or "--help" in parameter.opts or ("--output" in parameter.opts and path != "strandline"):
            continue
        text, match = record[1], _DEFAULT.search(record[1])
        notes = match["notes"] if match else ""
        rows.append((code(record[0]), text[: match.start()] if match else text, notes))
    return table(("option", "what it does", ""), rows)
