"""What the API answers does not depend on how the timeline's database lies on S3."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from catalog.lake import Lake
from cli.main import app
from infra.local.cloud import EmbeddedCloud
from tests.e2e.api.caller import ROWS, Api
from tests.waiting import wait_until


def test_queries_commits_and_changes_are_answered_after_timeline_compact(
    api: Api, cloud: EmbeddedCloud, lake: Lake
) -> None:
    table = api.make("gold.compacted", key=["station"])
    first = api.post(f"/tables/{table}/rows", {"rows": ROWS[:1]}).json()["snapshot_id"]
    cloud.wait_until_idle()
    index = api.get_when_ready(f"/commits/snapshot-{first}").json()["index"]
    api.post(f"/tables/{table}/rows", {"rows": ROWS[1:]})
    asked = CliRunner().invoke(app, ["-o", "json", "timeline", "compact"])
    assert json.loads(asked.stdout)["sent"] == "compact"
    cloud.wait_until_idle()
    size = int(api.get("/timeline/checkpoint").text.split("\n")[1])

    def count(**as_of: str) -> int | None:
        answer = api.post("/query", {"sql": f"select count(*) as n from {table}", **as_of})
        return int(answer.json()["rows"][0]["n"]) if answer.status_code == 200 else None

    def operations() -> list[str]:
        commits = api.get_when_ready(f"/tables/{table}/commits").json()["commits"]
        return [commit["operation"] for commit in commits]

    def changes() -> list[list[str]]:
        change_sets = api.get_when_ready(f"/tables/{table}/changes").json()["change_sets"]
        return [[change["op"] for change in change_set["changes"]] for change_set in change_sets]

    api.get_when_ready(f"/commits/{size - 1}")
    wait_until(lambda: len(operations()) == 3, "the commits of both inserts")
    assert operations() == ["create", "append", "append"]
    wait_until(lambda: count() == 2, "a query that sees both rows")
    wait_until(lambda: count(as_of=str(index)) == 1, "a query that sees the first row alone")
    wait_until(lambda: changes() == [["INSERT"], ["INSERT"]], "the changes of both inserts")
    for words in (("timeline", "log", table), ("query", f"select * from {table}"), ("changes", table, "--verify")):
        done = CliRunner().invoke(app, ["-o", "json", *words])
        assert done.exit_code == 0, (words, done.output, done.exception)
