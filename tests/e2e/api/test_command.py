"""`strandline api` against the deployed API: whatever it serves has a command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from catalog.access.routes import ROUTES
from catalog.errors import Denied, Invalid, NotFound, Unavailable
from cli.connection import Connection
from cli.main import app
from infra.local.cloud import EmbeddedCloud
from tests.e2e.flow import eventually


@pytest.fixture
def run(cloud: EmbeddedCloud, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("STRANDLINE_ENDPOINT", cloud.addresses()["api"])
    monkeypatch.setenv("STRANDLINE_TOKEN", cloud.token("admin"))

    def run(*words: str, fails: type[Exception] | None = None) -> Any:
        result = CliRunner().invoke(app, ["-o", "json", "api", *words])
        if fails is not None:
            assert isinstance(result.exception, fails), result.exception
            return str(result.exception)
        assert result.exit_code == 0, (result.output, result.exception)
        return json.loads(result.stdout)

    return run


def test_rows_go_in_from_a_file_and_come_out(run: Any, cloud: EmbeddedCloud, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("station,metres\nBrest,4.2\nNewlyn,3.1\n")
    run("create", "silver.cli", "--column", "station:string", "--column", "metres:double", "--key", "station")
    assert run("insert", "silver.cli", str(rows))["rows"] == 2
    assert run("upsert", "silver.cli", str(rows))["matched"] == 2
    assert run("delete", "silver.cli", "metres > 4", "--yes")["rows"] == 1
    assert run("rows", "silver.cli") == [{"station": "Newlyn", "metres": 3.1}]
    newlyn = ("query", "select metres from silver.cli where station = $s", "--param", "s=Newlyn")
    assert run(*newlyn, "--fresh") == [{"metres": 3.1}]
    assert eventually(lambda: _or_none(run, *newlyn, "--verify")) == [{"metres": 3.1}]
    assert "silver.cli" in run("list", "silver") and run("describe", "silver.cli")["rows"] == 1
    digest = run("upload", "bronze.cli", str(rows))["sha256"]
    cloud.wait_until_idle()
    assert run("where", digest)["status"] == "committed"
    commits = eventually(lambda: [one for one in run("commits", "silver.cli") if one["operation"] == "append"])
    run("proof", str(commits[0]["index"]), "--to", str(tmp_path / "p.tlog-proof"))
    assert (tmp_path / "p.tlog-proof").read_bytes().startswith(b"c2sp.org/tlog-proof@v1")


def test_problems_are_the_lakes_own_errors(run: Any, cloud: EmbeddedCloud) -> None:
    assert "silver.nothing" in run("describe", "silver.nothing", fails=NotFound)
    run("--token", "wrong", "list", fails=Denied)
    run("where", "0" * 64, fails=NotFound)
    assert "no.sql cannot be read" in run("query", "@no.sql", fails=Invalid)
    reader = cloud.token("reader:silver.*")
    assert run("--token", reader, "create", "silver.x", "--column", "a:long", fails=Denied)


def test_nobody_at_the_endpoint(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.connection.LONGEST_WAIT_S", 0.0)
    run("--endpoint", "http://127.0.0.1:1", "health", fails=Unavailable)


def test_whatever_the_api_serves_has_a_command(
    run: Any, cloud: EmbeddedCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, send = set[tuple[str, str]](), Connection.send

    def remember(self: Connection, method: str, path: str, *rest: Any, **more: Any) -> Any:
        asked.add((method, path))
        return send(self, method, path, *rest, **more)

    monkeypatch.setattr(Connection, "send", remember)
    table, file = "silver.commanded", tmp_path / "rows.csv"
    file.write_text("station,metres\nLerwick,1.2\n")
    assert run("health")["status"] == "ok" and run("metrics")["tables"] >= 0 and run("openapi")["openapi"] == "3.1.0"
    run(
        "create", table, "--column", "station:string", "--column", "metres:double", "--mode", "mor", "--sort", "station"
    )
    assert run("alter", table, "--add", "sea:string", "--rename", "metres=level")["mode"] == "mor"
    assert "which" not in run("alter", table, fails=Invalid) and table in run("list")
    assert [one["name"] for one in run("describe", table, "--schema", "0")["columns"]] == ["station", "metres"]
    assert [one["name"] for one in run("describe", table)["columns"]] == ["station", "level", "sea"]

    assert run("rule", "set", table, "--unknown", "evolve")["unknown"] == "evolve"
    assert run("rule", "get", table) == {**run("rule", "get", table), "table": table, "inferred": False}
    assert run("rule", "remove", table, "--yes")["removed"]
    assert run("rule", "get", table, fails=NotFound)
    digest = run("upload", "bronze.commanded", str(file))["sha256"]
    cloud.wait_until_idle()
    assert run("where", digest)["status"] == "committed"
    earlier = run("head")["checkpoint"].split("\n")[1]

    assert run("insert", "bronze.commanded", str(file))["rows"] == 1
    assert run("delete", "bronze.commanded", "metres > 99", "--yes")["rows"] == 0
    assert len(run("rows", "bronze.commanded")) == 2
    commits = eventually(lambda: [one for one in run("commits", "bronze.commanded") if one["sequence"] == 2])
    leaf = run("commit", str(commits[0]["index"]))
    assert run("commit", "--snapshot", leaf["snapshot_id"]) == leaf and run("commit", fails=Invalid)
    assert run("proof", "--snapshot", leaf["snapshot_id"])["proof"].startswith("c2sp.org/tlog-proof@v1")
    assert run("changes", "bronze.commanded", "--since", "1", "--until", "2")["changes"][0]["op"] == "INSERT"

    assert run("mark", "teller", "bronze.commanded")["sequence"] is None
    assert run("mark", "teller", "bronze.commanded", "--to", "2")["asked"] == 2
    assert eventually(lambda: run("mark", "teller", "bronze.commanded")["sequence"]) == 2
    named = run("snapshot", "kept", "--table", "bronze.commanded", "--snapshot", leaf["snapshot_id"])
    assert named["snapshot_id"] == leaf["snapshot_id"]
    assert [one["name"] for one in run("snapshots", "bronze.commanded")] == ["kept"]
    assert run("snapshot", "commanded-cut", "--index", "0")["index"] == 0
    assert eventually(lambda: _or_none(run, "snapshots", "--cut", "commanded-cut")) == {
        "name": "commanded-cut",
        "index": 0,
    }

    size = int(run("head")["checkpoint"].split("\n")[1])
    assert run("head", "--keys") and run("consistency", earlier, "--new", str(size))["hashes"]
    for path in (f"tile/0/000.p/{size}", f"tile/entries/000.p/{size}"):
        assert run("tile", path, "--to", str(tmp_path / "tile"))["bytes"] == (tmp_path / "tile").stat().st_size > 0

    assert run("query", "select count(*) as n from bronze.commanded", "--as-of", "commanded-cut", fails=NotFound)
    assert run("search", "bronze.commanded", "station", "shetland", fails=NotFound)
    assert run("result", "none", "--status", fails=NotFound) and run("result", "none", "--cancel", fails=NotFound)
    assert run("drop", table, "--yes")["dropped"] and table not in run("list")

    served = {
        route.key: re.compile(re.sub(r"{\w+(\+?)}", lambda m: ".+" if m[1] else "[^/]+", route.path))
        for route in ROUTES
    }
    never = [
        key
        for key, path in served.items()
        if not any(method == key.split()[0] and path.fullmatch(found) for method, found in asked)
    ]
    assert never == []


def _or_none(run: Any, *words: str) -> Any:
    try:
        return run(*words)
    except AssertionError:
        return None
