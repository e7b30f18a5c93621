"""A lake for tests of the command: an API server, a bucket, a signer and a queue, found by its environment."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import boto3
import pytest
from typer.testing import CliRunner

from catalog.lake import Lake, open_lake
from catalog.merkle.note import Ed25519Signer
from catalog.settings import load_settings
from cli.main import app
from infra.local.server import ApiServer

ORIGIN = "strandline.test/cli"


@contextmanager
def running_lake() -> Iterator[Lake]:
    """Nothing is sequenced unless the test does so: `lake.sequencer.catch_up`."""
    server = ApiServer()
    server.start()
    monkey = pytest.MonkeyPatch()
    bucket, key = f"lake-{uuid4().hex[:12]}", Ed25519Signer.generate(ORIGIN).private_key()
    server.endpoint.client("s3", "person").create_bucket(Bucket=bucket)
    server.endpoint.client("secretsmanager", "person").create_secret(Name="key", SecretString=key)
    queue = server.endpoint.client("sqs", "person").create_queue(QueueName="moved")["QueueUrl"]
    variables = {
        "STRANDLINE_BUCKET": bucket,
        "STRANDLINE_ORIGIN": ORIGIN,
        "STRANDLINE_SIGNER": "secret:key",
        "STRANDLINE_MOVED_QUEUE_URL": queue,
        **server.endpoint.environment("person"),
    }
    for name, value in variables.items():
        monkey.setenv(name, value)
    monkey.setattr(boto3, "DEFAULT_SESSION", None)  # it remembers the credentials it found first
    lake = open_lake(load_settings())
    yield lake
    lake.close()
    server.stop()
    monkey.undo()


def run(*words: str, stdin: str | bytes | None = None) -> Any:
    return CliRunner().invoke(app, list(words), input=stdin)


def answer(*words: str, stdin: str | bytes | None = None) -> Any:
    result = run("--output", "json", *words, stdin=stdin)
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def strandline(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own: exit codes as a shell sees them."""
    code = "import sys; from cli.main import main; main()"
    return subprocess.run([sys.executable, "-c", code, *words], input=stdin, capture_output=True, timeout=300)
