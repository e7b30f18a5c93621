"""No module imports itself by way of others, neither when it runs nor for its types alone."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp

ROOMS = ("catalog", "cli", "functions", "infra", "spark_jobs", "strandline")


def test_imports_have_no_cycle() -> None:
    graph = grimp.build_graph(*ROOMS, exclude_type_checking_imports=False, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        raise AssertionError(" imports ".join(reversed(error.args[1]))) from None
