"""Statements that are too large to plan are refused by name of the limit, and end no process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from catalog.core.errors import Invalid
from catalog.lake import Lake
from infra.local.server import ApiServer
from tests.worlds.hostile_statements import TOO_LARGE, WITHIN_LIMITS
from tests.worlds.lake import lake_on


@pytest.fixture(scope="module")
def results(server: ApiServer) -> dict[str, dict[str, Any]]:
    """What became of each statement, in a process that a statement may end."""
    with lake_on(server):  # whose settings are in the environment
        run = subprocess.run(
            [sys.executable, "-m", "tests.worlds.hostile_statements"],
            capture_output=True,
            text=True,
            check=False,
        )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    results = {line["name"]: line for line in lines if "name" in line}
    last = [line["begins"] for line in lines if "begins" in line][-1:]
    assert run.returncode == 0, f"the process ended with {run.returncode} in {last}: {run.stderr[-2000:]}"
    return results


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_statement_that_is_too_large_is_refused_by_its_limit(results: dict[str, dict[str, Any]], name: str) -> None:
    result = results[f"large: {name}"]
    assert result.get("kind") == "invalid", result
    assert re.search(TOO_LARGE[name][1], result["message"]), result["message"]


@pytest.mark.parametrize("name", WITHIN_LIMITS)
def test_a_statement_within_the_limits_runs(results: dict[str, dict[str, Any]], name: str) -> None:
    assert results[f"within: {name}"].get("rows"), results[f"within: {name}"]


def test_too_many_parameters_are_refused(server: ApiServer) -> None:
    with lake_on(server) as lake:
        _refused(lake, {f"p{number}": number for number in range(1001)})
        _refused(lake, list(range(1001)))


def _refused(lake: Lake, parameters: Any) -> None:
    with pytest.raises(Invalid, match="1001 parameters, over the limit of 1000"):
        lake.queries.run("SELECT 1", parameters=parameters)
