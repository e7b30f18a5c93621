"""Virtual environments beside the lake's own, for packages that do not go together with its dependencies."""

from __future__ import annotations

import hashlib
import venv
from dataclasses import dataclass

from tools.setup import ROOT, python, say


@dataclass(frozen=True)
class Separate:
    name: str
    """Of its lock in requirements/, and of its folder in build/."""
    what: str
    size: str

    @property
    def python(self) -> str:
        return str(ROOT / "build" / self.name / "bin" / "python")

    def ensure(self) -> None:
        folder, lock = ROOT / "build" / self.name, ROOT / "requirements" / f"{self.name}.lock"
        stamp, digest = folder / "lock.sha256", hashlib.sha256(lock.read_bytes()).hexdigest()
        if stamp.exists() and stamp.read_text() == digest and (folder / "bin" / "python").exists():
            return
        say(f"installing {self.what} for the tests ({self.size} unpacked, in build/{self.name})")
        venv.create(folder, clear=True, symlinks=True)
        build = ("--build-constraints", python.LOCKS / "build.lock")
        uv = (python.BIN / "uv", "pip", "sync", "--python", self.python)
        python.run(self.what, *uv, "--require-hashes", *build, lock)
        stamp.write_text(digest)


# It needs an older `cryptography` than the lake. One test deploys to it.
LOCALSTACK = Separate("localstack", "LocalStack", "330 MB")
# An extension of DuckDB is for one version of it, which is not the lake's.
TPCDS = Separate("tpcds", "TPC-DS's generator", "90 MB")


if __name__ == "__main__":
    for environment in (LOCALSTACK, TPCDS):
        environment.ensure()
