"""The lake over HTTP, for the commands below `strandline api`: which endpoint, and its problems as our own errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.errors import KINDS, Denied, Invalid, LakeError, Unavailable
from cli.embedded import ask_embedded_cloud
from cli.output import Output

if TYPE_CHECKING:
    from cli.client import Client, Problem

ENDPOINT, TOKEN = "STRANDLINE_ENDPOINT", "STRANDLINE_TOKEN"
TableName = Annotated[str, typer.Argument(help="The table, DATABASE.TABLE.")]
Key = Annotated[str | None, typer.Option("--idempotency-key", help="Done once, however often it is sent.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_OURS = {"unauthenticated": Denied, "throttled": Unavailable, "too_large": Invalid}


@dataclass(frozen=True)
class Target:
    endpoint: str | None
    token: str | None


def target(
    context: typer.Context,
    endpoint: Annotated[
        str | None, typer.Option(envvar=ENDPOINT, help="The API's address.", show_default="the embedded cloud's")
    ] = None,
    token: Annotated[str | None, typer.Option(envvar=TOKEN, help="A token of the API's issuer.")] = None,
) -> None:
    context.meta["target"] = Target(endpoint, token)


@contextmanager
def connected(context: typer.Context) -> Iterator[tuple[Client, Output]]:
    """The client, and the API's problems as the lake's own errors: so with the same exit codes."""
    import httpx

    from cli.client import Client, Pending, Problem

    given: Target = context.meta["target"]
    if given.endpoint is None:
        found = ask_embedded_cloud("api")
        given = Target(found["endpoint"], given.token or found["token"])
    assert given.endpoint is not None
    try:
        with Client(given.endpoint, given.token) as client:
            yield client, context.obj
    except Problem as problem:
        raise _error(problem) from None
    except Pending as pending:
        said = f"query {pending.query_id} runs as a job: fetch it with `strandline api result {pending.query_id}`"
        raise Unavailable(said, subject=pending.query_id) from None
    except httpx.TransportError as error:
        raise Unavailable(f"{given.endpoint} does not answer: {error}", subject=given.endpoint) from None
    except httpx.InvalidURL as error:
        raise Invalid(f"{given.endpoint} is no address: {error}") from None


def _error(problem: Problem) -> LakeError:
    kinds = {kind.name: kind for kind in KINDS}
    found = _OURS.get(problem.kind)
    for known in LakeError.__subclasses__():
        if problem.kind in kinds and known.kind is kinds[problem.kind]:
            found = known
    said = f"{problem.detail} (request {problem.instance})" if problem.instance else problem.detail
    return (found or Invalid)(said)
