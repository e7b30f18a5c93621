"""Every command in README.md and the guides is run, in order, against one embedded cloud."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from catalog.core.settings import load_settings
from catalog.lake import open_lake
from infra.local.cloud import EmbeddedCloud
from infra.stage import ROOT
from tests.guides.commands import Bench, aws, python_of, script_of, sections, strandline
from tests.waiting import wait_until

FIRST = ROOT / "docs" / "guide" / "first-ten-minutes.md"  # speaks of a lake that is new
DOCUMENTS = [FIRST, ROOT / "README.md", *sorted(set((ROOT / "docs" / "guide").glob("*.md")) - {FIRST})]

NOT_RUN = {
    "make demo": "tests/e2e/test_demo.py runs the demo",
    "make test": "runs this very test",
    "strandline witness run witness.key --log @lake.vkey": "stays up, too; tests/e2e/cli/test_witness.py runs one",
    "strandline dev": "stays up until Ctrl-C; this test's own cloud stands for it",
    ".venv/bin/strandline dev": "the same",
    "strandline changes silver.tides --follow": "stays until Ctrl-C; tests/e2e/cli/test_changes.py follows a feed",
    "strandline api query @report.sql --engine spark --wait 300": "a minute of Spark; tests/e2e/test_jobs.py has it",
    "strandline api result ID --status": "needs the id of such a query",
    "export STRANDLINE_ENDPOINT=https://… STRANDLINE_TOKEN=…": "this test's own cloud has another, and gives it",
    "pip install strandline": "tests/contract/strandline/test_wheel.py installs it",
    "strandline login https://lake.example": "there is no such lake; tests/unit/strandline/test_package.py logs in",
    "strandline job run medallion --wait": "most of a minute of Spark; tests/e2e/test_jobs.py and the demo run it",
}
"""Commands that are not run here, each with the reason."""

ONLY = {"deploy.md": ("1. Choose the stage", "4. The first file", "5. The first query")}
"""Of these documents, only these sections: tests/infra/test_deploy.py runs the others."""

PYTHON = ("api.md", "python.md")
"""Documents whose Python is run, too, after their commands: as one program."""

GIVEN = {
    "tables.md": """
        printf '{"id": 1, "name": "north"}\\n' > gauges.jsonl
        echo '{"id": "long", "text": "string"}' > notes.json
        printf '{"station": "Brest", "metres": 4.2, "at": "2026-03-01T06:00:00Z"}\\n' > today.jsonl
        printf 'station,metres,at\\nBrest,6.9,2026-03-01T12:00:00Z\\nDover,31.0,2026-03-01T12:00:00Z\\n' > today.csv
        mkdir -p exports/2026
        printf 'station,metres,at\\nNewlyn,3.1,2026-03-02T06:00:00Z\\n' > monday.csv
        printf '{"station": "Leith", "metres": 5.5, "at": "2026-03-02T06:00:00Z"}\\n' > exports/2026/tuesday.jsonl
    """,
    "changes.md": """
        strandline table create silver.tides --column station:string --column metres:double --key station
        printf 'station,metres\\nBrest,1.5\\nNewlyn,2.2\\n' | strandline table insert silver.tides - --format csv
        printf 'station,metres\\nBrest,6.9\\nDover,3.5\\n' | strandline table upsert silver.tides - --format csv
    """,
    "query.md": """
        strandline table create silver.tides --column id:long --column station:string --column metres:double --key id
        printf 'id,station,metres\\n7,Brest,4.2\\n8,Dover,3.5\\n' | strandline table insert silver.tides - --format csv
        strandline table snapshot silver.tides monday
    """,
    "ingest.md": """
        printf '{"id": 1, "at": "2026-03-01T06:00:00Z"}\\n' > tides.jsonl
    """,
    "jobs.md": """
        strandline table create gold.insights --column id:long
    """,
}
"""What a guide takes for granted: files the reader has, tables made before."""


@pytest.fixture(scope="module")
def cloud() -> Iterator[EmbeddedCloud]:
    with EmbeddedCloud() as cloud, pytest.MonkeyPatch.context() as patch:
        for name, value in {**cloud.environment("person"), "STRANDLINE_DEV": cloud.endpoint.url}.items():
            patch.setenv(name, value)
        yield cloud


@pytest.fixture(scope="module")
def bench(cloud: EmbeddedCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    api = cloud.session()
    told = {"headers": {"authorization": f"Bearer {api['token']}"}, "timeout": 60}

    def wait_until_idle() -> None:
        """Nothing is on its way, and the API, whose look at the timeline is at most a second old, has seen it."""
        cloud.wait_until_idle(240)
        head = httpx.get(f"{api['endpoint']}/timeline/checkpoint", **told)
        if head.is_success:  # else nothing was ever sequenced
            newest = int(head.text.splitlines()[1]) - 1
            commit = f"{api['endpoint']}/commits/{newest}"
            wait_until(lambda: httpx.get(commit, **told).is_success, f"commit {newest} at the API")

    tools = {
        "strandline": strandline(wait_until_idle),
        "aws": aws(lambda service: cloud.endpoint.client(service, "person")),
    }
    bench = Bench(tmp_path_factory.mktemp("guides"), tools)
    yield bench
    bench.close()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.name)
def test_its_commands_do_what_they_say(document: Path, cloud: EmbeddedCloud, bench: Bench) -> None:
    text = document.read_text()
    text = sections(text, *ONLY[document.name]) if document.name in ONLY else text
    script = script_of(text, NOT_RUN.__contains__)
    if document.name in PYTHON:
        script += f"\npython - <<'END'\n{python_of(text)}\nEND\n"
    if not script.strip():
        return
    api = cloud.session()
    variables = {
        **cloud.environment("person"),
        "STRANDLINE_ENDPOINT": api["endpoint"],
        "STRANDLINE_TOKEN": api["token"],
        "PYTHONPATH": str(ROOT),
    }
    try:
        bench.run(document.stem, GIVEN.get(document.name, ""), variables)
        bench.run(document.stem, script, variables)
    finally:
        cloud.wait_until_idle(240)  # nothing is on its way to a table that goes
        tables = open_lake(load_settings(os.environ)).tables
        for name in tables.list():
            tables.drop(name)


def test_what_is_left_out_is_still_in_a_document() -> None:
    written = "\n".join(script_of(document.read_text()) for document in DOCUMENTS)
    lines = {line.partition("  #")[0].strip() for line in written.splitlines()}
    assert set(NOT_RUN) <= lines
    assert set(GIVEN) | set(PYTHON) <= {document.name for document in DOCUMENTS}


def test_a_command_that_fails_is_named_with_its_line(bench: Bench) -> None:
    text = "# A guide\n\n```console\n$ strandline table list\nnothing\n$ strandline table describe no.where\n```\n"
    with pytest.raises(AssertionError, match=r"line 6: strandline table describe no.where: exit code 1"):
        bench.run("failing", script_of(text), {})
