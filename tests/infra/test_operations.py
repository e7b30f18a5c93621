"""What rings, what is paid for, and what a fresh account can have: the templates as an operator meets them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from infra.local.assembly import Template
from infra.stacks.observe import FUNCTIONS
from tests.infra.stages import STAGES, of_type, resources, synthesise_dev, templates, text_of


def test_a_run_that_did_not_end_well_rings_also_when_its_time_was_over() -> None:
    (rule,) = [one for name, one in of_type("prod", "AWS::Events::Rule").items() if "Failures" in name]
    assert rule["EventPattern"]["detail"]["state"] == ["FAILED", "CANCELLED"]


def test_throttles_ring_and_the_replicas_lag_where_there_is_one() -> None:
    def alarms(made: Iterable[Template]) -> dict[str, dict[str, Any]]:
        found = (body for one in made for body in one.body["Resources"].values())
        return {a["Properties"]["AlarmName"]: a["Properties"] for a in found if a["Type"] == "AWS::CloudWatch::Alarm"}

    plain = alarms(templates("dev"))
    assert {f"strandline-dev-{name.capitalize()}Throttles" for name in FUNCTIONS} <= plain.keys()
    assert "strandline-dev-ReplicationLag" not in plain
    made = synthesise_dev(replica_region="eu-west-1")
    lag = alarms(made)["strandline-dev-ReplicationLag"]
    dimensions = {one["Name"]: text_of(one["Value"]) for one in lag["Dimensions"]}
    rules = [
        rule
        for one in made
        for body in one.body["Resources"].values()
        for rule in body.get("Properties", {}).get("ReplicationConfiguration", {}).get("Rules", [])
    ]
    assert [rule["Id"] for rule in rules] == [dimensions["RuleId"]]
    assert rules[0]["Destination"]["Metrics"] == {"Status": "Enabled"}  # or S3 publishes none


def test_a_stage_has_a_budget_of_its_own_and_no_cost_monitor() -> None:
    """An account has one cost monitor by service, and a new account's is AWS's own."""
    assert not [one for stage in STAGES for one in resources(stage).values() if one["Type"].startswith("AWS::CE::")]
    assert not of_type("dev", "AWS::Budgets::Budget")
    (budget,) = of_type("prod", "AWS::Budgets::Budget").values()
    assert budget["Budget"]["CostFilters"] == {"TagKeyValue": ["user:stage$prod"]}
    assert budget["Budget"]["BudgetName"] == "strandline-prod-budget"


def test_delete_markers_and_route_metrics_are_not_paid_for_ever() -> None:
    (lake,) = [one for name, one in of_type("dev", "AWS::S3::Bucket").items() if "/Lake" in name]
    assert any(rule.get("ExpiredObjectDeleteMarker") for rule in lake["LifecycleConfiguration"]["Rules"])
    (stage,) = of_type("dev", "AWS::ApiGatewayV2::Stage").values()
    assert not stage["DefaultRouteSettings"]["DetailedMetricsEnabled"]


def test_in_prod_nobody_can_read_the_key_that_signs_and_only_the_sequencer_signs() -> None:
    assert not of_type("prod", "AWS::SecretsManager::Secret")
    (key,) = [key for key in of_type("prod", "AWS::KMS::Key").values() if "KeySpec" in key]
    assert (key["KeySpec"], key["KeyUsage"]) == ("ECC_NIST_EDWARDS25519", "SIGN_VERIFY")
    signing = {
        name
        for name, policy in of_type("prod", "AWS::IAM::Policy").items()
        if "kms:Sign" in json.dumps(policy["PolicyDocument"])
    }
    assert len(signing) == 1 and "Sequencer" in signing.pop()
    for function in of_type("prod", "AWS::Lambda::Function").values():
        assert text_of(function["Environment"]["Variables"]["STRANDLINE_SIGNER"]).startswith("kms:")
