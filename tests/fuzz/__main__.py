"""The long run, `make fuzz`: every target in turn, until the time is over. Failing inputs are kept in the corpus.

`python -m tests.fuzz [--seconds N] [TARGET …]`
"""

from __future__ import annotations

import argparse
import sys
import time
from hashlib import sha256

from tests.fuzz.runs import Run, failures
from tests.fuzz.targets import CORPUS, TARGETS

BATCH = 500


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--first", type=int, default=None, help="the first input's number; default: by the clock")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    options = parser.parse_args()
    unknown = set(options.targets) - set(TARGETS)
    if unknown:
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    first = int(time.time()) * 1000 if options.first is None else options.first
    deadline, tried, failed, names = time.monotonic() + options.seconds, 0, 0, options.targets or list(TARGETS)
    while time.monotonic() < deadline:
        for failure in failures([Run(name, first + tried, BATCH) for name in names]):
            failed += 1
            data = failure.data()
            path = CORPUS / failure.target / sha256(data).hexdigest()[:16]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            sys.stderr.write(f"{failure.target} {failure.number}: kept as {path}\n{failure.reason}\n")
        tried += BATCH
        sys.stderr.write(f"{tried * len(names)} inputs, {failed} failures\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
