"""Runs a command with the Node and Java that set-up chose on PATH: `python3 -m tools.setup.run pytest`."""

from __future__ import annotations

import json
import os
import sys

from tools.setup import ROOT, VENV
from tools.setup.__main__ import CHOSEN


def environment(command: str) -> dict[str, str]:
    chosen = json.loads(CHOSEN.read_text())
    # Synthesis and boto3 must not look for an account; `cdk` must, also on an instance with a role.
    metadata = {} if command == "cdk" else {"AWS_EC2_METADATA_DISABLED": "true"}
    return {
        **os.environ,
        **chosen["variables"],
        "PATH": os.pathsep.join([*chosen["path"], os.environ.get("PATH", "")]),
        "VIRTUAL_ENV": str(VENV),
        "PYTHONPATH": str(ROOT),
        **metadata,
        "CDK_DISABLE_CLI_TELEMETRY": "true",
    }


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python3 -m tools.setup.run COMMAND [ARGUMENT …]")
    os.execvpe(sys.argv[1], sys.argv[1:], environment(sys.argv[1]))
