"""The lake that `strandline dev` runs on this machine: its address, and its control endpoint."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any

from strandline.errors import NotFound

DEV = "STRANDLINE_DEV"
DEFAULT_PORT = 4780
CONTROL_PATH = "/_strandline"


def control_url() -> str:
    """The address of `strandline dev`: STRANDLINE_DEV, or the default port on loopback."""
    return os.environ.get(DEV, f"http://127.0.0.1:{DEFAULT_PORT}").rstrip("/")


def get(resource: str) -> Any:
    """GETs `api`, `environment` or `status` from the running lake; NotFound if no lake responds."""
    try:
        # Loopback by default; another address only if the user set STRANDLINE_DEV.
        with urllib.request.urlopen(f"{control_url()}{CONTROL_PATH}/{resource}", timeout=10) as response:  # noqa: S310
            return json.load(response)
    except (OSError, ValueError) as error:
        raise NotFound(f"no embedded lake responds at {control_url()} ({error})") from None
