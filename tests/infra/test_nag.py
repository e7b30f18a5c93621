"""cdk-nag's AwsSolutions over the largest stage there is: each finding has a reason, and each reason a finding."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.app import build_app
from infra.local.assembly import LOCAL_CONTEXT
from infra.reasons import NAG
from infra.stage import ROOT


def everything(outdir: Path) -> App:
    """Prod with all that is optional, and dev's signing key: each other stage has less."""
    stages = json.loads((ROOT / "cdk.json").read_text())["context"]["stages"]
    stages["prod"] |= {"replica_region": "eu-west-1", "signing": "secret"}
    return build_app({**LOCAL_CONTEXT, "stage": "prod", "stages": stages}, str(outdir))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """(rule, construct's path) of what cdk-nag and the CDK's own rules find."""
    outdir = tmp_path_factory.mktemp("nag")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CDK_VALIDATION", "true")
        app = everything(outdir)
        Validations.of(app).add_plugins(AwsSolutionsChecks(app))
        with pytest.raises(RuntimeError, match="ValidationFailed"):
            app.synth()
    reports: list[dict[str, Any]] = json.loads((outdir / "validation-report.json").read_text())["pluginReports"]
    return {
        (violation["ruleName"].partition("[")[0], construct["constructPath"])
        for report in reports
        for violation in report["violations"]
        for construct in violation["violatingConstructs"]
    }


def test_every_finding_has_a_reason(found: set[tuple[str, str]]) -> None:
    assert found
    bare = [
        (rule, path)
        for rule, path in sorted(found)
        if not any(rule == known.rule and re.search(f"({known.where})$", path) for known in NAG)
    ]
    assert bare == []


def test_every_reason_has_a_finding(found: set[tuple[str, str]]) -> None:
    """A reason for what is no longer so would hide the next one."""
    stale = [
        known
        for known in NAG
        if not any(rule == known.rule and re.search(f"({known.where})$", path) for rule, path in found)
    ]
    assert stale == []
