"""Sends one checkpoint to one witness over HTTP (c2sp.org/tlog-witness). Trusts nothing that comes back.

https only, except on this machine; no redirects, no compressed bodies, no retries; a response has a size limit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from ipaddress import ip_address

import urllib3
from urllib3.exceptions import HTTPError

from catalog.core.errors import Invalid, Unavailable
from catalog.merkle.cosignature import WitnessKey
from catalog.merkle.witness import AddCheckpoint

MAX_RESPONSE_BYTES = 16 << 10
KEEP_ALIVE_S = 20.0
"""A connection that was idle for longer is not used again: routers on the way may have dropped it silently."""


@dataclass(frozen=True, slots=True)
class WitnessResponse:
    status: int
    body: bytes


@dataclass
class WitnessClient:
    """One witness: its name in the policy, its key, and the prefix to which checkpoints are sent."""

    name: str
    key: WitnessKey
    url: str
    _pool: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(num_pools=1, maxsize=1))
    _used_at: float = float("-inf")

    def __post_init__(self) -> None:
        check_url(self.url)

    def add_checkpoint(self, request: AddCheckpoint, deadline: float) -> WitnessResponse:
        """Sends the request and reads the response; Unavailable without one.

        `deadline` (of time.monotonic) limits each wait for the network, but not the sum of a slow name server, a slow
        handshake and a slow response: a caller that must go on does not wait for this method to return.
        """
        now = time.monotonic()
        if now - self._used_at > KEEP_ALIVE_S:
            self._pool.clear()
        self._used_at = now
        try:
            response = self._pool.request(
                "POST",
                f"{self.url.rstrip('/')}/add-checkpoint",
                body=request.encode(),
                headers={"Content-Type": "text/plain; charset=utf-8", "Accept-Encoding": "identity"},
                timeout=urllib3.Timeout(total=max(deadline - now, 0.001)),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            return WitnessResponse(response.status, self._read(response, deadline))
        except (HTTPError, OSError, ValueError) as error:
            raise Unavailable(f"the witness {self.name} did not respond: {type(error).__name__}: {error}") from None

    def _read(self, response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
        body = b""
        try:
            while chunk := response.read1(MAX_RESPONSE_BYTES + 1 - len(body), decode_content=False):
                body += chunk
                if len(body) > MAX_RESPONSE_BYTES:
                    raise Unavailable(f"the witness {self.name} sent more than {MAX_RESPONSE_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise Unavailable(f"the witness {self.name} did not complete its response in time")
        except BaseException:
            response.close()  # the rest of the body is not read, so the connection cannot be used again
            raise
        response.release_conn()
        return body


def check_url(url: str) -> None:
    """Invalid unless it is an https URL, or an http URL of this machine, that a path can be added to."""
    try:
        parsed = urllib3.util.parse_url(url)
    except HTTPError as error:
        raise Invalid(f"{url!r:.200} is not a witness's URL: {error}") from None
    if not url.isascii() or not parsed.host or parsed.auth or parsed.query is not None or parsed.fragment is not None:
        raise Invalid(f"{url!r:.200} is not a witness's URL: it reads https://<host>/<path>, without a query")
    if parsed.scheme != "https" and not (parsed.scheme == "http" and _is_loopback(parsed.host)):
        raise Invalid(f"the witness's URL {url!r:.200} is not https; http is only for witnesses on this machine")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
