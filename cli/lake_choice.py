"""Which lake a command uses: the one that the environment names, otherwise the embedded cloud on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from catalog import NotFound
from catalog.core.settings import PREFIX
from strandline import embedded, errors

CHOSEN_TOOLS = Path(__file__).parents[1] / "build" / "chosen-tools.json"
"""Written by set-up: the Node and Java that it chose or installed."""


def get_embedded(resource: str) -> Any:
    """GETs `environment` or `status` from the running embedded cloud; NotFound says how to start one."""
    try:
        return embedded.get(resource)
    except errors.NotFound as error:
        raise NotFound(
            f"no lake is configured: {PREFIX}BUCKET is not set, and {error}. Start one with `strandline dev`, or "
            "set the variables of a deployed lake."
        ) from None


def use_lake() -> None:
    """Sets the lake's variables in this process's environment, unless they are set already."""
    if PREFIX + "BUCKET" not in os.environ:
        os.environ.update(get_embedded("environment"))


def use_chosen_tools() -> None:
    """Puts the Node and Java that set-up chose in front of PATH, whose own may be past their end of life.

    Call it before importing the embedded cloud. Does nothing if set-up has not run.
    """
    if not CHOSEN_TOOLS.exists():
        return
    chosen = json.loads(CHOSEN_TOOLS.read_text())
    os.environ["PATH"] = os.pathsep.join([*chosen["path"], os.environ.get("PATH", "")])
    os.environ.update(chosen["variables"])
