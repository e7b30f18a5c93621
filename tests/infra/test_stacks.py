"""The templates `cdk deploy` would upload: what must be true of them whatever the stacks grow into."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from catalog import places
from infra.app import build_app
from infra.local.assembly import Template, synthesise
from infra.stage import StageError, load_stage

FORBIDDEN_STORAGE = ("EphemeralStorage", "AWS::EFS", "AWS::EC2::Volume", "FileSystemConfigs")


@pytest.fixture(scope="module")
def templates() -> list[Template]:
    return synthesise(build_app)


@pytest.fixture(scope="module")
def all_resources(templates: list[Template]) -> dict[str, dict[str, Any]]:
    return {f"{t.stack}/{name}": body for t in templates for name, body in t.body["Resources"].items()}


def of_type(found: dict[str, dict[str, Any]], type_: str) -> dict[str, dict[str, Any]]:
    return {name: body["Properties"] for name, body in found.items() if body["Type"] == type_}


def test_every_function_names_a_handler_that_exists(all_resources: dict[str, dict[str, Any]]) -> None:
    functions = of_type(all_resources, "AWS::Lambda::Function")
    assert functions
    for name, properties in functions.items():
        module, _, handler = properties["ImageConfig"]["Command"][0].rpartition(".")
        assert callable(getattr(importlib.import_module(module), handler)), name


def test_every_function_has_time_out_memory_and_its_own_log_group(
    all_resources: dict[str, dict[str, Any]],
) -> None:
    for name, properties in of_type(all_resources, "AWS::Lambda::Function").items():
        assert {"Timeout", "MemorySize", "LoggingConfig"} <= set(properties), name


def test_the_sequencer_is_alone(all_resources: dict[str, dict[str, Any]]) -> None:
    (sequencer,) = [
        properties
        for properties in of_type(all_resources, "AWS::Lambda::Function").values()
        if properties["ImageConfig"]["Command"] == ["functions.sequencer.handler"]
    ]
    assert sequencer["ReservedConcurrentExecutions"] == 1


def test_nothing_asks_for_a_disk(templates: list[Template]) -> None:
    text = json.dumps([template.body for template in templates])
    assert not [word for word in FORBIDDEN_STORAGE if word in text]


def test_every_queue_is_encrypted_and_every_consumed_one_has_dead_letters(
    all_resources: dict[str, dict[str, Any]],
) -> None:
    queues = of_type(all_resources, "AWS::SQS::Queue")
    assert all(properties.get("SqsManagedSseEnabled") for properties in queues.values())
    assert len([q for q in queues.values() if "RedrivePolicy" in q]) * 2 == len(queues)


def test_every_bucket_is_private_versioned_and_encrypted(all_resources: dict[str, dict[str, Any]]) -> None:
    for name, properties in of_type(all_resources, "AWS::S3::Bucket").items():
        assert all(properties["PublicAccessBlockConfiguration"].values()), name
        assert properties["VersioningConfiguration"] == {"Status": "Enabled"}, name
        assert "BucketEncryption" in properties, name


def test_no_policy_allows_everything(all_resources: dict[str, dict[str, Any]]) -> None:
    for name, properties in of_type(all_resources, "AWS::IAM::Policy").items():
        for statement in properties["PolicyDocument"]["Statement"]:
            assert statement["Action"] != "*", name
            assert statement["Resource"] != "*", name


def test_the_api_may_run_queries_and_no_other_job(all_resources: dict[str, dict[str, Any]]) -> None:
    (policy,) = [
        properties["PolicyDocument"]["Statement"]
        for name, properties in of_type(all_resources, "AWS::IAM::Policy").items()
        if "-api/" in name
    ]
    found = {action: one for one in policy for action in _listed(one["Action"]) if action.startswith(("emr", "iam"))}
    assert set(found) == {f"emr-serverless:{verb}JobRun" for verb in ("Start", "Get", "Cancel")} | {"iam:PassRole"}
    passed = found["iam:PassRole"]
    assert passed["Condition"] == {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}
    assert "JobRole" in json.dumps(passed["Resource"])
    for action in set(found) - {"iam:PassRole"}:
        assert "Application" in json.dumps(found[action]["Resource"]), action
    (deleting,) = [one["Resource"] for one in policy if "s3:DeleteObject*" in _listed(one["Action"])]
    assert sorted(arn["Fn::Join"][1][-1] for arn in deleting) == ["/results/queries/*", "/tables/*"]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_results_and_history_expire(all_resources: dict[str, dict[str, Any]]) -> None:
    (bucket,) = of_type(all_resources, "AWS::S3::Bucket").values()
    days = {rule.get("Prefix"): rule.get("ExpirationInDays") for rule in bucket["LifecycleConfiguration"]["Rules"]}
    assert places.QUERIES.startswith(places.RESULTS)
    assert (days[places.RESULTS], days[places.HISTORY]) == (1, 90)


def test_stateful_things_stay_in_prod_and_go_in_dev() -> None:
    def kept(stage: str) -> set[str]:
        found = {}
        for template in synthesise(lambda context, out: build_app({**context, "stage": stage}, out)):
            found.update(template.body["Resources"])
        stateful = ("AWS::S3::Bucket", "AWS::SecretsManager::Secret", "AWS::Glue::Database")
        return {body["DeletionPolicy"] for body in found.values() if body["Type"] in stateful}

    assert kept("dev") == {"Delete"}
    assert kept("prod") == {"Retain"}


class TestStages:
    def test_an_unknown_stage_lists_the_known(self) -> None:
        with pytest.raises(StageError, match="dev, prod"):
            load_stage("staging")

    def test_all_problems_of_a_stage_are_listed(self) -> None:
        context = {"stage": "dev", "stages": {"dev": {"origin": "a b", "retain_data": "perhaps", "typo": 1}}}
        with pytest.raises(StageError) as caught:
            load_stage(context=context)
        for field in ("origin", "retain_data", "log_retention_days", "sweep_minutes", "typo"):
            assert field in str(caught.value)
