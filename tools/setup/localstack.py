"""LocalStack, in an environment of its own: it needs an older `cryptography` than the lake does.

One test deploys to it and nothing else uses it, so `make test` installs it and `make setup` does not.
"""

from __future__ import annotations

import hashlib
import venv

from tools.setup import ROOT, python, say

LOCK = ROOT / "requirements" / "localstack.lock"
PLACE = ROOT / "build" / "localstack"
PYTHON = PLACE / "bin" / "python"
STAMP = PLACE / "lock.sha256"


def ensure() -> None:
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == wanted and PYTHON.exists():
        return
    say("installing LocalStack for the tests (330 MB unpacked, in build/localstack); half a minute")
    venv.create(PLACE, clear=True, symlinks=True)
    build = ("--build-constraints", python.LOCKS / "build.lock")
    uv = (python.BIN / "uv", "pip", "sync", "--python", PYTHON)
    python.run("LocalStack", *uv, "--require-hashes", *build, LOCK)
    STAMP.write_text(wanted)


if __name__ == "__main__":
    ensure()
