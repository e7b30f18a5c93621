"""`strandline login` and `logout`: stores a lake's endpoint and token for `strandline api` and for Python.

The token is never printed, and is not an option: other users of the machine can read the command line.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from catalog import Invalid
from cli.api_connection import lake_error
from cli.lake_commands import add_command
from cli.output import Output


def register(app: typer.Typer) -> None:
    add_command(app, login, "login https://lake.example", "login https://lake.example --token-file token.txt")
    add_command(app, logout, "logout")


def login(
    context: typer.Context,
    endpoint: Annotated[str, typer.Argument(help="The API's address.")],
    token_file: Annotated[
        str | None,
        typer.Option(help="A file with the token; `-` is stdin.", show_default="a prompt without echo"),
    ] = None,
) -> None:
    """Store a lake's endpoint and a token in a file that only you can read. Tries the token first."""
    from strandline import profile
    from strandline.endpoints import check_url
    from strandline.errors import StrandlineError

    output: Output = context.obj
    try:
        url = check_url(endpoint)
        token = _token(output, token_file)
        tables = _count_tables(url, token)
        stored = profile.save(profile.Profile(url, token))
    except StrandlineError as error:
        raise lake_error(error.kind, error.message) from None
    except OSError as error:
        raise Invalid(f"the profile {profile.path()} cannot be written: {error}") from None
    answer = {"endpoint": url, "profile": str(stored), "tables": tables}
    output.data(answer, f"Logged in to {url}: you may read {tables} tables. Stored in {stored}.")


def logout(context: typer.Context) -> None:
    """Delete what `strandline login` stored. The token itself stays valid until it expires."""
    from strandline import profile

    output: Output = context.obj
    try:
        removed = profile.remove()
    except OSError as error:
        raise Invalid(f"the profile {profile.path()} cannot be removed: {error}") from None
    output.data({"removed": removed}, "Logged out." if removed else "Nobody was logged in.")


def _token(output: Output, file: str | None) -> str:
    if file is None:
        if output.is_json:
            raise Invalid("there is no prompt with -o json: add --token-file FILE, or --token-file - for stdin")
        return _checked(typer.prompt("Token", hide_input=True, err=True))
    try:
        return _checked(sys.stdin.read() if file == "-" else Path(file).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the token in {file} cannot be read: {error}") from None


def _checked(text: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or any(char.isspace() or not char.isprintable() for char in token):
        raise Invalid("this is not a token: it is empty, or has spaces or non-ASCII characters; copy it again")
    return token


def _count_tables(url: str, token: str) -> int:
    """The number of tables that the token may read. Finds a wrong address or token before it is stored."""
    from strandline.endpoints import Endpoint
    from strandline.errors import Unauthenticated
    from strandline.lake import Lake

    with Lake(Endpoint(url, token, "argument"), attempts=2) as lake:
        try:
            return len(lake.tables())
        except Unauthenticated:
            message = f"{url} does not accept this token: get a new one from its operator"
            raise lake_error("unauthenticated", message) from None
