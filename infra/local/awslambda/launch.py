"""The first thing a function worker runs: tie its life to its cloud's, then become awslambdaric.

Started as `python -m infra.local.awslambda.launch <parent pid> <handler>`.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1
# Here for tests and people; no function's image has it. pyarrow imports it wherever it is, at every start of a worker.
_NOT_IN_THE_IMAGE = "pandas"


class _ImageContents:
    """An import hook: what the image lacks is not found here either."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == _NOT_IN_THE_IMAGE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _die_with(parent: int) -> None:
    """A cloud that is killed cannot clean up, so the kernel does; SIGKILL also ends a frozen worker."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the request above was in force
        os._exit(1)


def main() -> None:
    parent, handler = sys.argv[1:3]
    _die_with(int(parent))
    sys.meta_path.insert(0, _ImageContents)
    sys.argv = ["awslambdaric", handler]
    runpy.run_module("awslambdaric", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
