#!/usr/bin/env python3
"""Starts the `node` on PATH for jsii, in a session of its own. JSII_NODE names this file.

A terminal sends Ctrl-C to every process of its foreground group. In that group Node would exit at once, and jsii's
shutdown would write into a closed pipe. In its own session Node exits when its stdin closes, however this process ends.
"""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # also drops a pending Ctrl-C that the parent process blocked
    try:
        os.execvp("node", ["node", *sys.argv[1:]])  # noqa: S606 - no shell is involved
    except FileNotFoundError:
        sys.exit("node is not on PATH: run `make setup`, which finds or installs it")
