"""`python -m tests.simulation --seeds 0:200`: runs the seeds. A failure is minimised, printed, and ends the run.

`PYTHONHASHSEED=0` is needed for a run to be the same again: `make simulate` sets it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulation import defects
from tests.simulation.minimise import RUNS, describe, minimise
from tests.simulation.run import OPS, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0:200", help="first:end, or one seed")
    parser.add_argument("--ops", type=int, default=OPS, help="operations in each run")
    parser.add_argument("--trace", action="store_true", help="print every request of each run")
    parser.add_argument("--shorten", type=int, default=RUNS, help="runs to make a failure shorter with")
    parser.add_argument("--defect", choices=[defect.__name__ for defect in defects.DEFECTS], help="put it back")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        parser.error("set PYTHONHASHSEED=0: without it no run can be repeated")
    first, _, end = arguments.seeds.partition(":")
    defect = getattr(defects, arguments.defect) if arguments.defect else None
    began, faults, requests = time.process_time(), 0, 0
    seeds = range(int(first), int(end) if end else int(first) + 1)
    for seed in seeds:
        outcome = simulate(seed, count=arguments.ops, defect=defect)
        faults, requests = faults + len(outcome.faults), requests + len(outcome.trace)
        if arguments.trace:
            print("\n".join(outcome.trace))
        if outcome.failure is not None:
            print(f"seed {seed} failed: {outcome.failure}\nmaking it shorter ...", flush=True)
            print(describe(minimise(outcome, defect, arguments.shorten)))
            return 1
    seconds = time.process_time() - began
    print(f"{len(seeds)} seeds kept every promise: {requests} steps, {faults} faults, {seconds:.0f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
