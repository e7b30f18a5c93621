"""`python -m tests.chaos --seconds 360`: kills and freezes the functions of a lake with writers; exit code 1 if
anything acknowledged is lost, doubled or hidden for longer than RECOVERY_S after the last kill."""

from __future__ import annotations

import argparse
import sys

from tests.chaos.run import run

RECOVERY_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=360.0, help="how long functions are killed")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of victims and moments")
    arguments = parser.parse_args()
    outcome = run(arguments.seed, arguments.seconds)
    sys.stdout.write(f"{outcome}\n")
    return int(bool(outcome.wrong) or outcome.recovery_s > RECOVERY_S)


if __name__ == "__main__":
    sys.exit(main())
