"""Which lake a command talks to: the one the environment names, otherwise the embedded cloud on this machine."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any

from catalog.errors import NotFound
from catalog.settings import PREFIX

DEFAULT_PORT = 4780
CONTROL_PATH = "/_strandline"


def control_url() -> str:
    """Where `strandline dev` listens. STRANDLINE_DEV names another one than the default."""
    return os.environ.get(PREFIX + "DEV", f"http://127.0.0.1:{DEFAULT_PORT}").rstrip("/")


def ask_embedded_cloud(what: str) -> Any:
    """GETs `environment` or `status` from the running embedded cloud; NotFound says how to start one."""
    url = f"{control_url()}{CONTROL_PATH}/{what}"
    try:
        # Loopback by default; whoever sets STRANDLINE_DEV chose the address.
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310
            return json.load(answer)
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        raise NotFound(
            f"no lake to talk to: {PREFIX}BUCKET is not set, and no embedded cloud answers at {control_url()} "
            f"({error}). Start one with `strandline dev`, or set the variables of a deployed lake."
        ) from None


def use_lake() -> None:
    """Puts the lake's variables into this process's environment, unless they are there already."""
    if PREFIX + "BUCKET" not in os.environ:
        os.environ.update(ask_embedded_cloud("environment"))
