"""`python -m bench [--quick] [SUITE …]`: measures and prints; results go into bench/results/<suite>.json."""

from __future__ import annotations

import argparse
import importlib
import pkgutil

import bench
from bench.harness import SUITES, line, run

NOT_SUITES = {"__main__", "harness"}


def main() -> None:
    for module in pkgutil.iter_modules(bench.__path__):
        if module.name not in NOT_SUITES:
            importlib.import_module(f"bench.{module.name}")
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"one of: {', '.join(sorted(SUITES))} (all)")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a first look")
    asked = parser.parse_args()
    unknown = set(asked.suites) - set(SUITES)
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(sorted(SUITES))}")
    for name, figures in run(asked.suites or sorted(SUITES), asked.quick).items():
        print(f"\n{name}")
        for figure in figures:
            print(f"  {line(figure)}")


if __name__ == "__main__":
    main()
