"""LocalStack, in its own virtual environment, since it needs an older `cryptography` than the lake.

Only one test uses it, so `make test` installs it and `make setup` does not.
"""

from __future__ import annotations

import hashlib
import venv

from tools.setup import ROOT, python, say

LOCK = ROOT / "requirements" / "localstack.lock"
FOLDER = ROOT / "build" / "localstack"
PYTHON = FOLDER / "bin" / "python"
STAMP = FOLDER / "lock.sha256"


def ensure() -> None:
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == digest and PYTHON.exists():
        return
    say("installing LocalStack for the tests (330 MB unpacked, in build/localstack); half a minute")
    venv.create(FOLDER, clear=True, symlinks=True)
    build = ("--build-constraints", python.LOCKS / "build.lock")
    uv = (python.BIN / "uv", "pip", "sync", "--python", PYTHON)
    python.run("LocalStack", *uv, "--require-hashes", *build, LOCK)
    STAMP.write_text(digest)


if __name__ == "__main__":
    ensure()
