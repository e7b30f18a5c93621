"""Where the embedded cloud listens, and as whom one talks to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import boto3
import botocore.session
from botocore.config import Config

ACCOUNT = "123456789012"
REGION = "us-east-1"

# Loopback answers or does not; a client that waits for minutes only hides a fault from the test that made it.
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

    The access key id *is* the principal's name (`function/ingest`, `job/compact`, `person`): nothing checks the
    secret, so the name tells the request log and the fault plan who called.
    """

    url: str
    region: str = REGION
    account: str = ACCOUNT

    def client(self, service: str, principal: str = "embedded-cloud") -> Any:
        return _client(self, service, principal)

    def environment(self, principal: str) -> dict[str, str]:
        """The variables that make any AWS SDK in a child process talk to this cloud, as `principal`."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": access_key(principal),
            "AWS_SECRET_ACCESS_KEY": "embedded",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def access_key(principal: str) -> str:
    """SigV4's credential scope is split at slashes, so the principal's own become dots."""
    return principal.replace("/", ".")


def principal_of(authorization: str) -> str:
    """Who signed a request: the access key id of `Credential=<id>/<date>/<region>/<service>/aws4_request`."""
    _, found, rest = authorization.partition("Credential=")
    return rest.split("/", 1)[0] if found else "anonymous"


@cache
def _client(endpoint: Endpoint, service: str, principal: str) -> Any:
    variables = endpoint.environment(principal)
    # A session of its own that reads no profile: whoever runs this may be logged in to a real account.
    session = botocore.session.Session()
    session.session_var_map["profile"] = (None, None, None, None)
    make: Any = boto3.Session(botocore_session=session).client  # typed by an overload per service's literal name
    return make(
        service,
        endpoint_url=endpoint.url,
        region_name=endpoint.region,
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        config=_CLIENT_CONFIG,
    )
