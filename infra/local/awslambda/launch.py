"""The entry point of a function worker: makes it die with its parent process, then runs awslambdaric.

Started as `python -m infra.local.awslambda.launch <parent pid> <handler>`.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1
# Installed for development only: no function's image has it. pyarrow imports it if it can, at each start of a worker.
_NOT_IN_THE_IMAGE = "pandas"


class _ImageContents:
    """An import hook that hides the package that the image lacks."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == _NOT_IN_THE_IMAGE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _die_with(parent: int) -> None:
    """Makes the kernel kill this process when its parent dies, since a killed cloud cannot stop its workers. SIGKILL
    also ends a frozen worker."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before prctl took effect
        os._exit(1)


def main() -> None:
    parent, handler = sys.argv[1:3]
    _die_with(int(parent))
    os.environ.pop("JSII_NODE", None)  # set by infra/__init__.py; a function has only its deployed variables
    sys.meta_path.insert(0, _ImageContents)
    sys.argv = ["awslambdaric", handler]
    runpy.run_module("awslambdaric", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
