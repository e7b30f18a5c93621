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
from bench.object_store import build_versitygw

NOT_SUITES = {"__main__", "harness", "plots", "report"}


def main() -> None:
    for module in pkgutil.iter_modules(bench.__path__):
        if module.name not in NOT_SUITES:
            importlib.import_module(f"bench.{module.name}")
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"one of: {', '.join(sorted(SUITES))} (all)")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a first look; saved separately")
    parser.add_argument("--rounds", type=int, default=1, help="repeat each suite; each figure is the median round's")
    parser.add_argument("--report", action="store_true", help="measure nothing, only write RESULTS.md again")
    arguments = parser.parse_args()
    unknown = set(arguments.suites) - set(SUITES)
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; choose from {', '.join(sorted(SUITES))}")
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not arguments.report:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and their data are removed
        build_versitygw()  # before any measurement
        for name, figures in run(arguments.suites or sorted(SUITES), arguments.quick, arguments.rounds).items():
            print(f"\n{name}")
            for figure in figures:
                print(f"  {line(figure)}")
    print(f"\n{report.write(folder(arguments.quick), folder(True) if arguments.quick else RESULTS.parent)}")


if __name__ == "__main__":
    main()
