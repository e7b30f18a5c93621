"""`aws` as the guides type it, answered by boto3: any operation of any service by its own words, and `s3 cp`.

The words are held against the service's own model: an operation or an option that AWS does not have is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jmespath
from botocore import xform_name

RENAMED = {"--endpoint": "--notification-endpoint"}
"""Options that the command line calls something else than the model does: the first would be one of its own."""

Clients = Callable[[str], Any]


class NotSaid(Exception):
    """The words make no sense to `aws`."""


def answer(words: list[str], client: Clients, cwd: Path, stdin: bytes) -> str:
    """What the command prints. Files are looked for in `cwd`."""
    service, operation, *rest = words
    if (service, operation) == ("s3", "cp"):
        _copy(rest, client("s3"), cwd, stdin)
        return ""
    return _call(client("s3" if service == "s3api" else service), operation, rest)


def _copy(words: list[str], s3: Any, cwd: Path, stdin: bytes) -> None:
    """`FILE s3://BUCKET/KEY`; a KEY that ends in / keeps the file's name, and `-` is what was piped in."""
    file, url = words
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not url.startswith("s3://") or not bucket:
        raise NotSaid(f"{url} is no place in S3")
    body = stdin if file == "-" else (cwd / file).read_bytes()
    s3.put_object(Bucket=bucket, Key=key + (Path(file).name if key.endswith("/") else ""), Body=body)


def _call(client: Any, operation: str, words: list[str]) -> str:
    options = dict(zip(words[::2], words[1::2], strict=True))
    query, output = options.pop("--query", None), options.pop("--output", "json")
    called = {xform_name(name, "-"): name for name in client.meta.service_model.operation_names}
    if operation not in called:
        raise NotSaid(f"{client.meta.service_model.service_name} has no operation {operation}")
    shape = client.meta.service_model.operation_model(called[operation]).input_shape
    options_of = {f"--{xform_name(name, '-')}": name for name in (shape.members if shape else ())}
    members = {RENAMED.get(option, option): name for option, name in options_of.items()}
    if unknown := set(options) - set(members):
        raise NotSaid(f"{operation} has no option {', '.join(sorted(unknown))}")
    response = getattr(client, operation.replace("-", "_"))(**{members[name]: value for name, value in options.items()})
    response.pop("ResponseMetadata", None)
    response = jmespath.search(query, response) if query else response
    if output == "text":
        return "\t".join(map(str, response)) + "\n" if isinstance(response, list) else f"{response}\n"
    return json.dumps(response, indent=4, default=str) + "\n"
