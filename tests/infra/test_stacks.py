"""The stages: what their settings may say, and what each setting puts into the templates. Laws are in test_laws.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from catalog.access.routes import ROUTES
from catalog.core import s3_layout
from catalog.merkle.cosignature import WitnessSigner
from infra.app import build_app
from infra.local.assembly import synthesise
from infra.stacks.observe import functions_of, queues_of
from infra.stage import ROOT, StageError, load_stage
from tests.infra.stages import STAGES, listed, of_type, synthesise_dev, templates, text_of

LAMBDA_FUNCTION = "AWS::Lambda::Function"
CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/0a1b2c3d-0000-4000-8000-000000000000"


def test_prod_has_a_key_and_dev_does_without() -> None:
    assert not of_type("dev", "AWS::KMS::Key")
    assert len([key for key in of_type("prod", "AWS::KMS::Key").values() if "KeySpec" not in key]) == 1
    (lake,) = [one for name, one in of_type("prod", "AWS::S3::Bucket").items() if "/Lake" in name]
    (rule,) = lake["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert rule["BucketKeyEnabled"]


def test_a_layer_is_tiered_when_its_stage_says_so() -> None:
    def tiers(stage: str) -> dict[str, int]:
        (lake,) = [one for name, one in of_type(stage, "AWS::S3::Bucket").items() if "/Lake" in name]
        rules = [rule for rule in lake["LifecycleConfiguration"]["Rules"] if "Transitions" in rule]
        return {rule["Prefix"]: rule["Transitions"][0]["TransitionInDays"] for rule in rules}

    assert tiers("dev") == {}
    prod = load_stage("prod").tier_after_days
    assert tiers("prod") == {
        f"tables/{layer}/" if layer in ("bronze", "silver", "gold") else f"{layer}/": days
        for layer, days in prod.items()
    }


def test_the_api_trusts_the_given_issuer_or_a_pool_of_its_own() -> None:
    def issuer(stage: str) -> str:
        (authorizer,) = of_type(stage, "AWS::ApiGatewayV2::Authorizer").values()
        return text_of(authorizer["JwtConfiguration"]["Issuer"])

    for stage in STAGES:
        assert "People" in issuer(stage) and "ProviderURL" in issuer(stage)
    named = synthesise_dev(issuer="https://issuer.example", audience="lake")
    (authorizer,) = [
        body["Properties"]
        for one in named
        for body in one.body["Resources"].values()
        if body["Type"] == "AWS::ApiGatewayV2::Authorizer"
    ]
    assert text_of(authorizer["JwtConfiguration"]["Issuer"]) == "${Issuer}"
    (pool,) = of_type("prod", "AWS::Cognito::UserPool").values()
    assert pool["MfaConfiguration"] == "ON" and pool["AdminCreateUserConfig"]["AllowAdminCreateUserOnly"]


def test_the_api_has_a_name_of_its_own_where_the_stage_gives_one() -> None:
    assert not any(of_type(stage, "AWS::ApiGatewayV2::DomainName") for stage in STAGES)
    settings = json.loads((ROOT / "cdk.json").read_text())["context"]["stages"]["dev"]
    given = {"api_domain": "lake.example.org", "api_certificate": CERTIFICATE}
    made = synthesise(lambda context, out: build_app({**context, "stages": {"dev": {**settings, **given}}}, out))
    (api,) = [one.body for one in made if one.stack.endswith("-api")]
    by_type = {one["Type"]: one["Properties"] for one in api["Resources"].values()}
    domain, mapping = by_type["AWS::ApiGatewayV2::DomainName"], by_type["AWS::ApiGatewayV2::ApiMapping"]
    assert domain["DomainName"] == "lake.example.org"
    (configuration,) = domain["DomainNameConfigurations"]
    assert (configuration["CertificateArn"], configuration["SecurityPolicy"]) == (CERTIFICATE, "TLS_1_2")
    assert mapping["ApiId"] == {"Ref": "Api"} and mapping["Stage"] == {"Ref": "Stage"}
    assert mapping["DomainName"] == {"Ref": "Domain"}
    assert "DomainTarget" in api["Outputs"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_route_is_public_only_if_the_table_of_routes_says_so(stage: str) -> None:
    public = {route.key for route in ROUTES if route.is_public(public_entries=False)}
    routes = of_type(stage, "AWS::ApiGatewayV2::Route").values()
    assert {route["RouteKey"] for route in routes if "AuthorizationType" not in route} == public
    assert len(routes) > len(public)


def test_a_stage_may_publish_its_entries() -> None:
    settings = json.loads((ROOT / "cdk.json").read_text())["context"]["stages"]["prod"]
    given = {**settings, "public_entries": True}
    made = synthesise(lambda context, out: build_app({**context, "stage": "prod", "stages": {"prod": given}}, out))
    bodies = [body for stack in made for body in stack.body["Resources"].values()]
    routes = [one["Properties"] for one in bodies if one["Type"] == "AWS::ApiGatewayV2::Route"]
    open_keys = {route["RouteKey"] for route in routes if "AuthorizationType" not in route}
    assert open_keys == {route.key for route in ROUTES if route.public}
    statements = [
        statement
        for one in bodies
        if one["Type"] == "AWS::S3::BucketPolicy"
        for statement in one["Properties"]["PolicyDocument"]["Statement"]
    ]
    assert not [one for one in statements if one.get("Sid") == "EntriesAreNotPublic"]
    functions = [one["Properties"] for one in bodies if one["Type"] == "AWS::Lambda::Function"]
    told = [one["Environment"]["Variables"].get("STRANDLINE_PUBLIC_ENTRIES") for one in functions]
    assert sorted(filter(None, told)) == ["true", "true"]


def test_the_world_reads_the_timeline_and_nothing_else() -> None:
    (policy,) = [one for name, one in of_type("prod", "AWS::S3::BucketPolicy").items() if "/Lake" in name]
    allowed = [one for one in policy["PolicyDocument"]["Statement"] if one["Effect"] == "Allow"]
    (public,) = [one for one in allowed if one["Principal"] == {"Service": "cloudfront.amazonaws.com"}]
    assert text_of(public["Resource"]).endswith("}/timeline/*")
    (kept,) = [one for one in policy["PolicyDocument"]["Statement"] if one.get("Sid") == "EntriesAreNotPublic"]
    assert (kept["Effect"], kept["Principal"], kept["Action"]) == ("Deny", public["Principal"], "s3:GetObject")
    assert text_of(kept["Resource"]).endswith("}/timeline/tile/entries/*") and "Condition" not in kept
    (distribution,) = of_type("prod", "AWS::CloudFront::Distribution").values()
    config = distribution["DistributionConfig"]
    assert config["Origins"][0]["OriginPath"] == "/timeline"
    behaviors = [config["DefaultCacheBehavior"], *config["CacheBehaviors"]]
    assert {one["ViewerProtocolPolicy"] for one in behaviors} == {"https-only"}
    assert [one["PathPattern"] for one in config["CacheBehaviors"]] == ["tile/*"]
    assert not of_type("dev", "AWS::CloudFront::Distribution")


@pytest.mark.parametrize("stage", STAGES)
def test_alarms_watch_what_is_there(stage: str) -> None:
    """Metrics are found by name: each name must be one that a stack gives, or that a function tells."""
    functions = {one["FunctionName"] for one in of_type(stage, "AWS::Lambda::Function").values()}
    queues = {one["QueueName"] for one in of_type(stage, "AWS::SQS::Queue").values()}
    assert functions == {f"strandline-{stage}-{name}" for name in functions_of(load_stage(stage))}
    watched: dict[str, set[str]] = {}
    for alarm in of_type(stage, "AWS::CloudWatch::Alarm").values():
        assert alarm["AlarmActions"] and alarm["TreatMissingData"] == "notBreaching"
        for dimension in alarm["Dimensions"]:
            watched.setdefault(dimension["Name"], set()).add(text_of(dimension["Value"]))
    assert watched["FunctionName"] == functions
    assert watched["QueueName"] == queues
    assert {f"strandline-{stage}-{name}{suffix}" for name, suffix in queues_of(load_stage(stage)).items()} < queues
    assert watched["service"] == {"ingest", "sequencer", "canary"} and watched["stage"] == {stage}


def test_traces_are_for_stages_that_ask() -> None:
    def modes(stage: str) -> set[str]:
        functions = of_type(stage, "AWS::Lambda::Function").values()
        return {one.get("TracingConfig", {}).get("Mode", "PassThrough") for one in functions}

    assert modes("dev") == {"PassThrough"} and modes("prod") == {"Active"}


def test_lake_formation_may_take_part_in_prod() -> None:
    (location,) = of_type("prod", "AWS::LakeFormation::Resource").values()
    assert location["HybridAccessEnabled"] is True
    assert text_of(location["ResourceArn"]).endswith("/tables")


def test_the_templates_name_no_account() -> None:
    """But for the example of a signed request's caller in the dev stage."""
    text = json.dumps([one.body for stage in STAGES for one in templates(stage)])
    assert text.replace("arn:aws:iam::123456789012:user/person", "").count("123456789012") == 0


def test_the_api_may_run_queries_and_no_other_job() -> None:
    (policy,) = [
        properties["PolicyDocument"]["Statement"]
        for name, properties in of_type("dev", "AWS::IAM::Policy").items()
        if "-api/Function" in name
    ]
    allowed = {action: one for one in policy for action in listed(one["Action"]) if action.startswith(("emr", "iam"))}
    assert set(allowed) == {f"emr-serverless:{verb}JobRun" for verb in ("Start", "Get", "Cancel")} | {"iam:PassRole"}
    passed = allowed["iam:PassRole"]
    assert passed["Condition"] == {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}
    assert "JobRole" in json.dumps(passed["Resource"])
    for action in set(allowed) - {"iam:PassRole"}:
        assert "Application" in json.dumps(allowed[action]["Resource"]), action


def test_the_public_function_reads_the_timeline_and_nothing_else() -> None:
    (policy,) = [
        properties["PolicyDocument"]["Statement"]
        for name, properties in of_type("dev", "AWS::IAM::Policy").items()
        if "-api/PublicFunction" in name
    ]
    actions = {action for one in policy for action in listed(one["Action"]) if not action.startswith("logs:")}
    assert actions == {"s3:GetObject", "s3:ListBucket"}
    read = [json.dumps(one["Resource"]) for one in policy if "s3:GetObject" in listed(one["Action"])]
    assert all("/timeline" in resource for resource in read) and "tables" not in json.dumps(policy)


def test_only_the_function_that_erases_writes_records_of_it_and_deletes_versions() -> None:
    """Another one that could write them could make the sequencer sign that rows were erased."""
    readers, writers, purgers = set[str](), set[str](), set[str]()
    for name, properties in of_type("prod", "AWS::IAM::Policy").items():
        for one in properties["PolicyDocument"]["Statement"]:
            purgers |= {name} if "s3:DeleteObjectVersion" in listed(one["Action"]) else set()
            if f"/{s3_layout.ERASURES}" in json.dumps(one["Resource"]):
                readers |= {name} if "s3:GetObject" in listed(one["Action"]) else set()
                writers |= {name} if set(listed(one["Action"])) - {"s3:GetObject"} else set()
    assert [name for name in readers if "/Sequencer" in name]
    assert len(purgers) == 1 and writers == purgers and all("/EraseRole" in name for name in purgers)


def test_results_and_history_expire() -> None:
    (lake,) = [one for name, one in of_type("dev", "AWS::S3::Bucket").items() if "/Lake" in name]
    days = {rule.get("Prefix"): rule.get("ExpirationInDays") for rule in lake["LifecycleConfiguration"]["Rules"]}
    assert s3_layout.QUERIES.startswith(s3_layout.RESULTS)
    assert (days[s3_layout.RESULTS], days[s3_layout.HISTORY]) == (1, 90)


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

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("log_retention_days", 8),
            ("tier_after_days", {"platinum": 1}),
            ("replica_region", "Frankfurt"),
            ("ingest_concurrency", 1),
            ("audience", None),
            ("api_domain", "lake.example.org"),  # without a certificate
            ("api_certificate", CERTIFICATE),  # without a name
            ("api_domain", "https://lake.example.org"),
        ],
    )
    def test_a_setting_that_cannot_be(self, field: str, value: Any) -> None:
        good = {"origin": "a/b", "retain_data": False, "log_retention_days": 7, "sweep_minutes": 5}
        good |= {"issuer": "https://i", "audience": "a"}
        load_stage(context={"stage": "dev", "stages": {"dev": good}})
        with pytest.raises(StageError):
            load_stage(context={"stage": "dev", "stages": {"dev": {**good, field: value}}})


WITNESS = WitnessSigner.generate("witness.example/w1").witness_key


def test_the_sequencer_alone_is_told_of_the_stages_witnesses() -> None:
    context = json.loads((ROOT / "cdk.json").read_text())["context"]["stages"]["dev"]
    lines = [f"witness w1 {WITNESS} https://witness.example/w1", "quorum w1"]
    stages = {"dev": {**context, "witnesses": lines}}
    made = synthesise(lambda context, out: build_app({**context, "stages": stages}, out))
    functions = [
        body["Properties"] for one in made for body in one.body["Resources"].values() if body["Type"] == LAMBDA_FUNCTION
    ]
    told = {
        one["FunctionName"]: one["Environment"]["Variables"].get("STRANDLINE_WITNESSES")
        for one in functions
        if "FunctionName" in one
    }
    assert told.pop("strandline-dev-sequencer") == "".join(f"{line}\n" for line in lines)
    assert told and not any(told.values())
    (sequencer,) = [one for one in functions if one.get("FunctionName") == "strandline-dev-sequencer"]
    assert "VpcConfig" not in sequencer  # without a NAT gateway it would not reach the witnesses


@pytest.mark.parametrize(
    "lines",
    [
        ["witness w1 rubbish https://witness.example", "quorum w1"],
        [f"witness w1 {WITNESS} http://witness.example", "quorum w1"],
        [f"witness w1 {WITNESS}", "quorum w1"],
        [f"witness w1 {WITNESS} https://witness.example"],
        [f"witness w1 {WITNESS} https://witness.example", "quorum w1", "#" * 3000],
    ],
    ids=["no key", "no TLS", "no URL", "no quorum", "too large"],
)
def test_witnesses_that_cannot_be_asked_are_refused_before_anything_is_deployed(lines: list[str]) -> None:
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    context["stages"]["dev"]["witnesses"] = lines
    with pytest.raises(StageError, match="witness"):
        load_stage("dev", context)
