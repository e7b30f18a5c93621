"""The HTTP client for the commands of `strandline api`, and the API's problems as LakeErrors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from catalog import Denied, Invalid, LakeError, Unavailable
from catalog.core.errors import KINDS
from cli.output import Output
from strandline.endpoints import ENDPOINT, TOKEN

if TYPE_CHECKING:
    from strandline.client import Client

TableName = Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")]
Key = Annotated[str | None, typer.Option("--idempotency-key", help="The same key never commits twice.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
_OTHER_KINDS = {"unauthenticated": Denied, "throttled": Unavailable, "too_large": Invalid}


@dataclass(frozen=True)
class ApiTarget:
    endpoint: str | None
    token: str | None


def target(
    context: typer.Context,
    endpoint: Annotated[
        str | None,
        typer.Option(
            envvar=ENDPOINT,
            help="The API's address.",
            show_default="`strandline login`'s, else the embedded cloud's",
        ),
    ] = None,
    token: Annotated[str | None, typer.Option(envvar=TOKEN, help="A token of the API's issuer.")] = None,
) -> None:
    context.meta["target"] = ApiTarget(endpoint, token)


@contextmanager
def connected(context: typer.Context) -> Iterator[tuple[Client, Output]]:
    """The client and the output. The API's problems are raised as LakeErrors, so that the exit codes are the same."""
    import httpx

    from strandline.client import Client, Pending, Problem
    from strandline.endpoints import resolve
    from strandline.errors import StrandlineError

    options: ApiTarget = context.meta["target"]
    try:
        endpoint = resolve(options.endpoint, options.token)
    except StrandlineError as error:
        raise lake_error(error.kind, error.message) from None
    try:
        with Client(endpoint.url, endpoint.token) as client:
            yield client, context.obj
    except Problem as problem:
        message = f"{problem.detail} (request {problem.instance})" if problem.instance else problem.detail
        if problem.kind == "unauthenticated":
            message += f": run `strandline login {endpoint.url}`, or set {TOKEN}"
        raise lake_error(problem.kind, message) from None
    except Pending as pending:
        message = f"query {pending.query_id} runs as a job: fetch it with `strandline api result {pending.query_id}`"
        raise Unavailable(message, subject=pending.query_id) from None
    except httpx.TransportError as error:
        next_step = f"check the address in --endpoint or {ENDPOINT}, then try again"
        raise Unavailable(f"{endpoint.url} does not respond: {error}; {next_step}", subject=endpoint.url) from None
    except httpx.InvalidURL as error:
        raise Invalid(f"{endpoint.url} is not a URL: {error}. Write --endpoint https://lake.example") from None


def lake_error(kind: str, message: str) -> LakeError:
    """A LakeError of the kind that a problem or a StrandlineError names; Invalid for an unknown kind."""
    kinds = {kind.name: kind for kind in KINDS}
    error_class = _OTHER_KINDS.get(kind)
    for subclass in LakeError.__subclasses__():
        if kind in kinds and subclass.kind is kinds[kind]:
            error_class = subclass
    return (error_class or Invalid)(message)
