"""`strandline env`: the variables of a lake as `export` lines, for `eval "$(strandline env)"`.

A shell runs what it prints. So the names must be the lake's or the AWS SDK's, and every value is quoted.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from catalog import Invalid, NotFound
from cli.api_connection import lake_error
from cli.output import Output
from strandline import embedded
from strandline.endpoints import ENDPOINT, TOKEN

_NAME = re.compile(r"(?:STRANDLINE|AWS)_[A-Z0-9_]+")


def register(app: typer.Typer) -> None:
    app.command(epilog='Examples: `eval "$(strandline env)"` · `strandline env --login` · `strandline env -o json`')(
        env
    )


def env(
    context: typer.Context,
    login: Annotated[
        bool, typer.Option("--login", help="Only the endpoint and token that `strandline login` stored.")
    ] = False,
) -> None:
    """Print the variables of a lake as export lines for bash and zsh: `eval "$(strandline env)"`.

    They are those of the lake that `strandline dev` runs; without one, those that `strandline login` stored. They
    include the token.
    """
    output: Output = context.obj
    exports = _of_login() if login else _of_running_lake()
    if output.is_json:
        output.data({"environment": exports})
    else:
        typer.echo("\n".join(export_lines(exports)))  # not through rich, which would interpret the values


def embedded_exports(url: str, session: Mapping[str, str] | None, environment: Mapping[str, str]) -> dict[str, str]:
    """What another terminal needs for `strandline`, `strandline api`, curl and other AWS tools."""
    api = {} if session is None else {ENDPOINT: session["endpoint"], TOKEN: session["token"]}
    return {embedded.DEV: url, **api, **environment}


def export_lines(exports: Mapping[str, Any]) -> list[str]:
    """`export NAME='value'` for bash, zsh and sh. Invalid for anything that a lake has no reason to set."""
    for name, value in exports.items():
        if not _NAME.fullmatch(name):
            raise Invalid(f"the lake names a variable {name!r}, which is not its own: nothing is exported")
        if not isinstance(value, str) or not value.isprintable():
            raise Invalid(f"the lake's {name} is not printable text: nothing is exported")
    return [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]


def _of_running_lake() -> dict[str, str]:
    from strandline.errors import NotFound as NoAnswer

    try:
        environment = embedded.get("environment")
    except NoAnswer as error:
        if embedded.DEV in os.environ:  # the user named this lake: another one would be a surprise
            next_step = f"start it with `strandline dev`, or `unset {embedded.DEV}`, or add --login"
            raise NotFound(f"{error.message}: {next_step}") from None
        return _of_login(reason=error.message)
    try:
        session = embedded.get("api")
    except NoAnswer:  # a lake without an API
        session = None
    return embedded_exports(embedded.control_url(), session, environment)


def _of_login(reason: str | None = None) -> dict[str, str]:
    from strandline import profile
    from strandline.errors import StrandlineError

    try:
        stored = profile.load()
    except StrandlineError as error:
        raise lake_error(error.kind, error.message) from None
    if stored is None:
        because = "nobody is logged in" if reason is None else f"{reason}, and nobody is logged in"
        raise NotFound(
            f"there is no lake to name: {because}. Start one with `strandline dev`, or run `strandline login ENDPOINT`."
        )
    return {ENDPOINT: stored.endpoint, TOKEN: stored.token}
