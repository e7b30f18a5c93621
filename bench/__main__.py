"""`python -m bench [--quick] [SUITE …]`: measures and prints; results go into bench/results and bench/RESULTS.md."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import signal
import sys

import bench
from bench import report
from bench.harness import RESULTS, SUITES, folder, line, run
from bench.object_store import built

NOT_SUITES = {"__main__", "harness", "plots", "report"}


def main() -> None:
    for module in pkgutil.iter_modules(bench.__path__):
        if module.name not in NOT_SUITES:
            importlib.import_module(f"bench.{module.name}")
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"one of: {', '.join(sorted(SUITES))} (all)")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a first look; kept apart")
    parser.add_argument("--rounds", type=int, default=1, help="each suite so often; figures are the median round's")
    parser.add_argument("--report", action="store_true", help="measure nothing: only write RESULTS.md anew")
    asked = parser.parse_args()
    unknown = set(asked.suites) - set(SUITES)
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(sorted(SUITES))}")
    if asked.rounds < 1:
        parser.error("at least one round")
    if not asked.report:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers and their data go with us
        built()  # before any suite's clock runs
        for name, figures in run(asked.suites or sorted(SUITES), asked.quick, asked.rounds).items():
            print(f"\n{name}")
            for figure in figures:
                print(f"  {line(figure)}")
    print(f"\n{report.write(folder(asked.quick), folder(True) if asked.quick else RESULTS.parent)}")


if __name__ == "__main__":
    main()
