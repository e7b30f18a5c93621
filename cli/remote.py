"""`strandline api`: the lake over HTTP, with `--endpoint` and `--token`. Needs no AWS credentials and no bucket.

Without `--endpoint` it uses the endpoint of `strandline login`, or else the embedded cloud with a token that has all
roles. Every route of the API has a command here.
"""

from __future__ import annotations

import typer

from cli import remote_files, remote_queries, remote_tables, remote_timeline
from cli.api_connection import connected, target
from cli.lake_commands import add_command


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The lake over its HTTP API.", no_args_is_help=True, callback=target)
    add_command(group, health, "api health", "api --endpoint https://lake.example health")
    add_command(group, metrics, "api metrics", "-o json api metrics")
    add_command(group, openapi, "api openapi", "-o json api openapi")
    for part in (remote_tables, remote_queries, remote_timeline, remote_files):
        part.register(group)
    app.add_typer(group, name="api")


def health(context: typer.Context) -> None:
    """Check whether the API responds."""
    with connected(context) as (client, output):
        output.data(client.health())


def metrics(context: typer.Context) -> None:
    """Show tables, leaves, queue lengths, and what was quarantined in the last day."""
    with connected(context) as (client, output):
        output.data(client.metrics())


def openapi(context: typer.Context) -> None:
    """Show the API's description, as OpenAPI 3.1."""
    with connected(context) as (client, output):
        output.data(client.openapi())
