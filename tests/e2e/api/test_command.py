"""`strandline api` against the deployed API: whatever it serves has a command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from catalog.access.routes import ROUTES
from catalog.core.errors import Denied, Invalid, NotFound, Unavailable, Unverified
from cli.main import app
from infra.local.cloud import EmbeddedCloud
from strandline.connection import Connection
from tests.waiting import wait_until


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
    verified = wait_until(lambda: _or_none(run, *newlyn, "--verify"), "a query that is proven")
    assert verified == [{"metres": 3.1}]
    assert "silver.cli" in run("list", "silver") and run("describe", "silver.cli")["rows"] == 1
    digest = run("upload", "bronze.cli", str(rows))["sha256"]
    cloud.wait_until_idle()
    assert run("where", digest)["status"] == "committed"
    commits = wait_until(
        lambda: [commit for commit in run("commits", "silver.cli") if commit["operation"] == "append"],
        "the insert in the timeline",
    )
    run("proof", str(commits[0]["index"]), "--to", str(tmp_path / "p.tlog-proof"))
    assert (tmp_path / "p.tlog-proof").read_bytes().startswith(b"c2sp.org/tlog-proof@v1")


def test_a_row_is_proven_over_http_and_verified_offline(run: Any, cloud: EmbeddedCloud, tmp_path: Path) -> None:
    rows, file, vkey = tmp_path / "rows.csv", tmp_path / "row.tlog-proof", tmp_path / "lake.vkey"
    rows.write_text('station,hour,metres\n"a&b=c/d ü",1,4.2\nNewlyn,2,3.1\n')
    columns = ("--column", "station:string", "--column", "hour:long", "--column", "metres:double")
    run("create", "silver.proven", *columns, "--key", "station", "--key", "hour")
    run("insert", "silver.proven", str(rows))
    key = ("--key", "station=a&b=c/d ü", "--key", "hour=1")
    last = wait_until(lambda: [one for one in run("commits", "silver.proven") if one["operation"] == "append"], "leaf")
    at = str(last[-1]["index"])
    run("row-proof", "silver.proven", *key, "--at", at, "--to", str(file))
    vkey.write_text("\n".join(run("head", "--keys")))
    asked = ["--row", "station=a&b=c/d ü", "--row", "hour=1", "--at", at, "--table", "silver.proven"]
    command = ["-o", "json", "proof", "verify", str(file), "--key", f"@{vkey}"]
    shown = CliRunner().invoke(app, [*command, *asked])
    assert shown.exit_code == 0, (shown.output, shown.exception)
    answer = json.loads(shown.stdout)
    assert answer["exists"] and answer["row"] == {"station": "a&b=c/d ü", "hour": 1, "metres": 4.2}
    for wrong in (["--row", "station=a&b=c/d ü", "--row", "hour=2", *asked[4:]], [*asked[:-1], "silver.cli"]):
        refused = CliRunner().invoke(app, [*command, *wrong])
        assert isinstance(refused.exception, Unverified), refused.output
    assert isinstance(CliRunner().invoke(app, command).exception, Invalid), "it must be said which row"
    stranger = cloud.token("reader:gold.*")
    run("--token", stranger, "row-proof", "silver.proven", *key, fails=NotFound)
    many = ("--key", "station=a&b=c/d ü", "--key", "station=Newlyn", "--range", "hour=0..5")
    run("--token", stranger, "answer-proof", "silver.proven", *many, fails=NotFound)
    run("answer-proof", "silver.proven", *many, "--at", at, "--to", str(file))
    asked = ["--row", "station=a&b=c/d ü", "--row", "station=Newlyn", "--range", "hour=0..5", *asked[4:]]
    shown = CliRunner().invoke(app, [*command, *asked])
    assert shown.exit_code == 0, (shown.output, shown.exception)
    answer = json.loads(shown.stdout)
    assert answer["asked"] == 12 and sorted(row["row"]["metres"] for row in answer["rows"]) == [3.1, 4.2]
    refused = CliRunner().invoke(app, [*command, *asked[2:]])
    assert isinstance(refused.exception, Unverified), refused.output
    assert "is not a key" in run("row-proof", "silver.proven", "--key", "station", fails=Invalid)


def test_two_columns_of_one_name_are_both_shown(run: Any, cloud: EmbeddedCloud) -> None:
    sql = "SELECT a.v, b.v FROM (VALUES (41)) a(v), (VALUES (42)) b(v)"
    assert "AS v_2" in run("query", sql, fails=Invalid)
    shown = CliRunner().invoke(app, ["api", "query", sql]).stdout
    assert "41" in shown and "42" in shown


def test_problems_are_the_lakes_own_errors(run: Any, cloud: EmbeddedCloud) -> None:
    assert "silver.nothing" in run("describe", "silver.nothing", fails=NotFound)
    run("--token", "wrong", "list", fails=Denied)
    run("where", "0" * 64, fails=NotFound)
    assert "no.sql cannot be read" in run("query", "@no.sql", fails=Invalid)
    reader = cloud.token("reader:silver.*")
    assert run("--token", reader, "create", "silver.x", "--column", "a:long", fails=Denied)


def test_nobody_at_the_endpoint(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.connection.MAX_PAUSE_S", 0.0)
    run("--endpoint", "http://127.0.0.1:1", "health", fails=Unavailable)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """Method and path of every request that the commands send."""
    sent, send = set[tuple[str, str]](), Connection.send

    def remember(self: Connection, method: str, path: str, *rest: Any, **more: Any) -> Any:
        sent.add((method, path))
        return send(self, method, path, *rest, **more)

    monkeypatch.setattr(Connection, "send", remember)
    return sent


def test_whatever_the_api_serves_has_a_command(
    run: Any, cloud: EmbeddedCloud, tmp_path: Path, sent: set[tuple[str, str]]
) -> None:
    assert run("health")["status"] == "ok" and run("metrics")["tables"] >= 0 and run("openapi")["openapi"] == "3.1.0"
    table, file = "silver.commanded", tmp_path / "rows.csv"
    file.write_text("station,metres\nLerwick,1.2\n")
    shape_a_table(run, table)
    rule_its_files(run, table)
    ingest(run, cloud, file)
    earlier = run("head")["checkpoint"].split("\n")[1]
    leaf = write_and_prove(run, file)
    mark_and_name(run, leaf["snapshot_id"])
    copy_the_log(run, earlier, tmp_path / "tile")
    ask_for_what_is_not_there(run)
    ask_to_erase(run, table)
    assert run("drop", table, "--yes")["dropped"] and table not in run("list")

    served = {
        route.key: re.compile(re.sub(r"{\w+(\+?)}", lambda m: ".+" if m[1] else "[^/]+", route.path))
        for route in ROUTES
    }
    never = [
        key
        for key, pattern in served.items()
        if not any(method == key.split()[0] and pattern.fullmatch(path) for method, path in sent)
    ]
    assert never == []


def shape_a_table(run: Any, table: str) -> None:
    run(
        "create", table, "--column", "station:string", "--column", "metres:double", "--mode", "mor", "--sort", "station"
    )
    assert run("alter", table, "--add", "sea:string", "--rename", "metres=level")["mode"] == "mor"
    assert "which" not in run("alter", table, fails=Invalid) and table in run("list")
    assert [one["name"] for one in run("describe", table, "--schema", "0")["columns"]] == ["station", "metres"]
    assert [one["name"] for one in run("describe", table)["columns"]] == ["station", "level", "sea"]


def ask_to_erase(run: Any, table: str) -> None:
    """An admin may not: the role to erase is another one."""
    assert "eraser" in run("erase", table, "--where", "station = 'x'", "--reason", "asked to", "--yes", fails=Denied)
    assert "eraser" in run("erasure", table, "0" * 32, fails=Denied)


def rule_its_files(run: Any, table: str) -> None:
    assert run("rule", "set", table, "--unknown", "evolve")["unknown"] == "evolve"
    assert run("rule", "get", table) == {**run("rule", "get", table), "table": table, "inferred": False}
    assert run("rule", "remove", table, "--yes")["removed"]
    assert run("rule", "get", table, fails=NotFound)


def ingest(run: Any, cloud: EmbeddedCloud, file: Path) -> None:
    digest = run("upload", "bronze.commanded", str(file))["sha256"]
    cloud.wait_until_idle()
    assert run("where", digest)["status"] == "committed"


def write_and_prove(run: Any, file: Path) -> Any:
    """The leaf of the insert."""
    assert run("insert", "bronze.commanded", str(file))["rows"] == 1
    assert run("delete", "bronze.commanded", "metres > 99", "--yes")["rows"] == 0
    (done,) = run("execute", "update bronze.commanded set metres = $m where false", "--param", "m=1", "--yes")
    assert (done["statement"], done["rows"]) == ("UPDATE", 0)
    assert len(run("rows", "bronze.commanded")) == 2
    commits = wait_until(
        lambda: [commit for commit in run("commits", "bronze.commanded") if commit["sequence"] == 2],
        "the insert in the timeline",
    )
    leaf = run("commit", str(commits[0]["index"]))
    assert run("commit", "--snapshot", leaf["snapshot_id"]) == leaf and run("commit", fails=Invalid)
    assert run("proof", "--snapshot", leaf["snapshot_id"])["proof"].startswith("c2sp.org/tlog-proof@v1")
    feed = run("changes", "bronze.commanded", "--since", "sequence:1", "--until", "sequence:2")
    assert feed["changes"][0]["op"] == "INSERT"
    return leaf


def mark_and_name(run: Any, snapshot: str) -> None:
    assert run("mark", "teller", "bronze.commanded")["sequence"] is None
    assert run("mark", "teller", "bronze.commanded", "--to", "2")["asked"] == 2
    assert wait_until(lambda: run("mark", "teller", "bronze.commanded")["sequence"], "the watermark to be set") == 2
    named = run("snapshot", "kept", "--table", "bronze.commanded", "--snapshot", snapshot)
    assert named["snapshot_id"] == snapshot
    assert [one["name"] for one in run("snapshots", "bronze.commanded")] == ["kept"]
    assert run("snapshot", "commanded-cut", "--index", "0")["index"] == 0
    cut = wait_until(lambda: _or_none(run, "snapshots", "--cut", "commanded-cut"), "the name of the cut")
    assert cut == {"name": "commanded-cut", "index": 0}


def copy_the_log(run: Any, earlier: str, file: Path) -> None:
    size = int(run("head")["checkpoint"].split("\n")[1])
    assert run("head", "--keys")
    proof = wait_until(lambda: _or_none(run, "consistency", earlier, "--new", str(size)), "a proof of consistency")
    assert proof["hashes"]
    for path in (f"tile/0/000.p/{size}", f"tile/entries/000.p/{size}"):
        assert run("tile", path, "--to", str(file))["bytes"] == file.stat().st_size > 0


def ask_for_what_is_not_there(run: Any) -> None:
    assert run("query", "select count(*) as n from bronze.commanded", "--as-of", "commanded-cut", fails=NotFound)
    assert run("search", "bronze.commanded", "station", "shetland", fails=NotFound)
    assert run("result", "none", "--status", fails=NotFound) and run("result", "none", "--cancel", fails=NotFound)
    assert run("row-proof", "bronze.nowhere", "--key", "station=Unst", fails=NotFound)
    assert run("answer-proof", "bronze.nowhere", "--key", "station=Unst", fails=NotFound)


def _or_none(run: Any, *words: str) -> Any:
    try:
        return run(*words)
    except AssertionError:
        return None
