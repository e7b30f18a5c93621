"""Creates all boto3 clients, so that every request of the lake has the same timeouts and retries.

A client connects within 5 seconds, sends a request three times at most, and addresses buckets by path at a custom
endpoint. Creating one sends no request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import boto3
from botocore.config import Config
from botocore.credentials import Credentials

from catalog.core.settings import Settings

CONNECT_TIMEOUT_S = 5.0
RETRIES = 3
POOL = 32
"""Open connections: as many as a process has requests in flight."""


def client_for(settings: Settings, service: str, **options: Any) -> Any:
    """A client of the service at the settings' endpoint and region. `options` are those of `make_client`."""
    options = {"read_timeout_s": settings.store_timeout_s, **options}
    return make_client(service, region=settings.region, endpoint_url=settings.endpoint_url, **options)


def make_client(
    service: str,
    *,
    region: str | None,
    endpoint_url: str | None,
    read_timeout_s: float,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    retries: int = RETRIES,
    pool: int = POOL,
    virtual_hosts: bool = False,
    signature_version: str | None = None,
    credentials: Sequence[str | None] = (None, None, None),
) -> Any:
    """A client of the service. `credentials`: key id, secret and session token; by default the environment's.

    `virtual_hosts`: always put the bucket into the host name on AWS, as presigned URLs for others need it.
    """
    key_id, secret, token = credentials
    make: Any = boto3.client  # typed as one overload for each service name
    return make(
        service,
        region_name=region,
        endpoint_url=endpoint_url,
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        aws_session_token=token,
        config=Config(
            signature_version=signature_version,
            connect_timeout=connect_timeout_s,
            read_timeout=read_timeout_s,
            max_pool_connections=pool,
            retries={"mode": "standard", "max_attempts": retries},
            s3={"addressing_style": _addressing(endpoint_url, virtual_hosts)},
        ),
    )


def environment_credentials() -> Credentials | None:
    """The credentials of every client, for libraries that access S3 without boto3."""
    return boto3.Session().get_credentials()


def _addressing(endpoint_url: str | None, virtual_hosts: bool) -> Any:
    if endpoint_url:
        return "path"
    return "virtual" if virtual_hosts else "auto"
