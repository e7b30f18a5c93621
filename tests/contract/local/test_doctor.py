"""`strandline doctor`: every planted fault is found, and says what to type; what is well is said to be well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from infra.doctor.account import BOOTSTRAP, account
from infra.doctor.finding import Finding
from infra.local.machine import NODE_ENDS, machine
from infra.local.quotas import Quotas, account_with
from infra.local.server import ApiServer
from infra.stage import Stage

STAGE = Stage(name="doc", origin="a/b", retain_data=False, log_retention_days=7, sweep_minutes=1)


@pytest.fixture
def bootstrapped(server: ApiServer) -> Iterator[None]:
    ssm = server.endpoint.client("ssm")
    ssm.put_parameter(Name=BOOTSTRAP, Value="28", Type="String", Overwrite=True)
    yield
    ssm.delete_parameter(Name=BOOTSTRAP)


def look(server: ApiServer, stage: Stage = STAGE, region: str | None = "us-east-1") -> dict[str, Finding]:
    return {one.check: one for one in account(stage, region, server.endpoint.client)}


def wrong(findings: dict[str, Finding]) -> set[str]:
    assert all(one.next for one in findings.values() if not one.ok)
    return {name for name, one in findings.items() if not one.ok}


def test_a_new_account_that_is_bootstrapped_can_have_the_lake(server: ApiServer, bootstrapped: None) -> None:
    mark = server.log.mark()
    assert wrong(look(server)) == set()
    reads = ("Get", "List", "Describe", "GET")
    posted = {"DescribeStacks", "POST"}  # CloudFormation's and STS's protocol has no other method
    assert all(r.action.startswith(reads) or r.action in posted for r in server.log.since(mark))


def test_an_account_that_is_not_bootstrapped(server: ApiServer) -> None:
    found = look(server)
    assert wrong(found) == {"bootstrap"} and "cdk bootstrap" in found["bootstrap"].next


def test_a_bootstrap_that_is_too_old(server: ApiServer, bootstrapped: None) -> None:
    server.endpoint.client("ssm").put_parameter(Name=BOOTSTRAP, Value="6", Type="String", Overwrite=True)
    assert wrong(look(server)) == {"bootstrap"}


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"ingest_concurrency": 8}, "lambda quota"),
        ({"api_concurrency": 1}, "lambda quota"),
        ({"job_executors": 2}, "emr quota"),
        ({"issuer": "http://127.0.0.1:9", "audience": "a"}, "issuer"),
    ],
)
def test_a_stage_that_the_account_cannot_have(
    server: ApiServer, bootstrapped: None, change: dict[str, Any], check: str
) -> None:
    assert wrong(look(server, STAGE.model_copy(update=change))) == {check}


def test_a_larger_account_can_have_more(server: ApiServer, bootstrapped: None) -> None:
    large = STAGE.model_copy(update={"ingest_concurrency": 100, "api_concurrency": 100, "job_executors": 7})
    with account_with(Quotas(lambda_concurrency=1000, emr_vcpus=64)):
        assert wrong(look(server, large)) == set()


def test_names_that_somebody_else_has(server: ApiServer, bootstrapped: None) -> None:
    glue = server.endpoint.client("glue")
    glue.create_database(DatabaseInput={"Name": "gold"})
    try:
        found = look(server)
        assert wrong(found) == {"names"} and "gold" in found["names"].seen
    finally:
        glue.delete_database(Name="gold")


@pytest.mark.parametrize("region", [None, "mars-north-1"])
def test_a_region_that_is_not_there(server: ApiServer, bootstrapped: None, region: str | None) -> None:
    assert "region" in wrong(look(server, region=region))


def test_an_account_that_cannot_be_reached_is_a_finding_not_a_crash(server: ApiServer) -> None:
    def nobody(service: str) -> Any:
        raise ConnectionError(f"no way to {service}")

    found = {one.check: one for one in account(STAGE, "us-east-1", nobody)}
    assert wrong(found) == {"credentials", "bootstrap", "lambda quota", "emr quota", "names"}


class TestTheMachine:
    @pytest.fixture
    def tool(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
        monkeypatch.setenv("PATH", str(tmp_path))

        def install(name: str, says: str) -> None:
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\necho '{says}'\n")
            path.chmod(0o755)

        return install

    def test_a_machine_without_tools(self, tool: Any, tmp_path: Path) -> None:
        found = {one.check: one for one in machine(jars=tmp_path)}
        assert wrong(found) == {"node", "java", "docker", "jars"}

    def test_tools_that_are_too_old(self, tool: Callable[[str, str], None], tmp_path: Path) -> None:
        tool("node", "v20.1.0")
        tool("java", 'openjdk version "11.0.2"')
        tool("docker", "")
        found = {one.check: one for one in machine(today=NODE_ENDS[20], jars=tmp_path)}
        assert wrong(found) == {"node", "java", "jars"} and "end of life" in found["node"].seen

    def test_tools_that_are_good(self, tool: Callable[[str, str], None], tmp_path: Path) -> None:
        tool("node", "v22.1.0")
        tool("java", 'openjdk version "17.0.2"')
        tool("buildah", "")
        assert wrong({one.check: one for one in machine(today=date(2026, 11, 18), jars=tmp_path)}) == {"jars"}
