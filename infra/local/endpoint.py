"""The address of the embedded cloud, and AWS clients and environment variables for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import boto3
import botocore.session
from botocore.config import Config

ACCOUNT = "123456789012"
REGION = "us-east-1"

# Loopback responds at once or not at all; longer timeouts would only hide an injected fault from its test.
_CLIENT_CONFIG = Config(
    connect_timeout=5,
    read_timeout=60,
    max_pool_connections=50,
    retries={"mode": "standard", "max_attempts": 2},
    s3={"addressing_style": "path"},
)


@dataclass(frozen=True)
class Endpoint:
    """One address that serves every AWS API of the embedded cloud.

    The access key id is the principal's name (`function/ingest`, `job/compact`, `person`), which the request log and
    the fault plan use. Secrets are not checked.
    """

    url: str
    region: str = REGION
    account: str = ACCOUNT

    def client(self, service: str, principal: str = "embedded-cloud") -> Any:
        return _client(self, service, principal)

    def environment(self, principal: str) -> dict[str, str]:
        """The variables that make an AWS SDK in a child process use this cloud as `principal`."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": access_key(principal),
            "AWS_SECRET_ACCESS_KEY": "embedded",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def access_key(principal: str) -> str:
    """The principal with dots for slashes: SigV4's credential scope is split at slashes."""
    return principal.replace("/", ".")


def principal_of(authorization: str) -> str:
    """The access key id of `Credential=<id>/<date>/<region>/<service>/aws4_request`, or `anonymous`."""
    _, separator, credential = authorization.partition("Credential=")
    return credential.split("/", 1)[0] if separator else "anonymous"


@cache
def _client(endpoint: Endpoint, service: str, principal: str) -> Any:
    variables = endpoint.environment(principal)
    # A session that reads no profile, because the user may be logged in to a real account.
    session = botocore.session.Session()
    session.session_var_map["profile"] = (None, None, None, None)
    create_client: Any = boto3.Session(botocore_session=session).client  # its type has an overload for each service
    return create_client(
        service,
        endpoint_url=endpoint.url,
        region_name=endpoint.region,
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        config=_CLIENT_CONFIG,
    )
