"""The real CDK command line, against the embedded cloud: bootstrap, deploy, diff, deploy a change, destroy.

Prod, since it has every part and keeps what must be kept. Images are taken as built: their tags are in the repository
that bootstrapping made, as after a push, so that the command line neither builds nor asks for Docker.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.app import build_app
from infra.local.assembly import BOOTSTRAP_VERSION, LOCAL_CONTEXT, deploy, resources
from infra.local.emr import api as emr_api
from infra.local.endpoint import ACCOUNT, REGION, Endpoint
from infra.local.server import ApiServer
from infra.stage import ROOT
from tests.infra.stages import templates

CDK = ROOT / "build" / "cdk" / "node_modules" / ".bin" / "cdk"
STACKS = {f"strandline-prod-{name}" for name in ("storage", "compute", "api", "jobs", "observe")}
KEPT = {
    "AWS::Cognito::UserPool",
    "AWS::Glue::Database",
    "AWS::KMS::Key",
    "AWS::S3::Bucket",
    "AWS::SecretsManager::Secret",
}


class CommandLine:
    """`cdk` as an operator types it; only the endpoint is another."""

    def __init__(self, server: ApiServer, home: Path) -> None:
        self.endpoint: Endpoint = server.endpoint
        self._home = home
        self._environment = {
            "PATH": os.pathsep.join([str(ROOT / ".venv" / "bin"), os.environ.get("PATH", "")]),
            "HOME": str(home),
            **server.endpoint.environment("operator"),
            # By name: buckets are addressed as hosts below it.
            "AWS_ENDPOINT_URL": server.endpoint.url.replace("127.0.0.1", "localhost"),
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CI": "true",
        }

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [str(CDK), *words, "--no-notices", "--no-color"],
            cwd=self._home,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def operator(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    assert CDK.exists(), "the CDK's command line is not there: `make setup` installs it"
    emr_api.patch()  # moto alone does not know the release that jobs run on
    return CommandLine(server, tmp_path_factory.mktemp("operator"))


def synth(outdir: Path, **changed: Any) -> str:
    stages = json.loads((ROOT / "cdk.json").read_text())["context"]["stages"]
    stages["prod"] |= changed
    build_app({**LOCAL_CONTEXT, "stage": "prod", "stages": stages}, str(outdir)).synth()
    return str(outdir)


def push_images(endpoint: Endpoint, assembly: str) -> int:
    """As if they had been built and pushed: a manifest under the tag that each asset has."""
    client, pushed = endpoint.client("ecr"), 0
    for listing in Path(assembly).glob("*.assets.json"):
        for image in json.loads(listing.read_text())["dockerImages"].values():
            for place in image["destinations"].values():
                repository = place["repositoryName"].replace("${AWS::AccountId}", ACCOUNT)
                manifest = {
                    "schemaVersion": 2,
                    "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
                    "config": {"mediaType": "image", "size": 1, "digest": f"sha256:{place['imageTag']}"},
                    "layers": [],
                }
                client.put_image(
                    repositoryName=repository.replace("${AWS::Region}", REGION),
                    imageManifest=json.dumps(manifest),
                    imageTag=place["imageTag"],
                )
                pushed += 1
    return pushed


@pytest.mark.usefixtures("operator")
def test_of_a_dev_lake_nothing_is_left(server: ApiServer) -> None:
    """Through the API, as the command line below does it for prod: each stack is described once it is gone."""
    endpoint, stacks = server.endpoint, templates("dev")
    deploy(endpoint, stacks)
    assert len(remaining(endpoint)) > 30
    cloudformation = endpoint.client("cloudformation")
    for stack in reversed(stacks):
        id_ = cloudformation.describe_stacks(StackName=stack.stack)["Stacks"][0]["StackId"]
        cloudformation.delete_stack(StackName=stack.stack)
        assert cloudformation.describe_stacks(StackName=id_)["Stacks"][0]["StackStatus"] == "DELETE_COMPLETE"
    assert remaining(endpoint) == set()
    endpoint.client("ssm").delete_parameter(Name=BOOTSTRAP_VERSION[0])  # the next one begins with `cdk bootstrap`


@pytest.mark.timeout(1200)  # a Node process for each step: a minute, and on a loaded machine many
def test_a_lakes_life_by_the_command_line(
    operator: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDK_VALIDATION", "false")
    endpoint, app = operator.endpoint, synth(tmp_path / "app")
    cloudformation = endpoint.client("cloudformation")

    operator.run("bootstrap", f"aws://{ACCOUNT}/{REGION}", "--app", app)
    assert push_images(endpoint, app) >= 4
    upload = ("deploy", "--method=direct", "--require-approval=never")
    operator.run(*upload, "--all", "--app", app)
    deployed = {stack["StackName"]: stack["StackStatus"] for stack in cloudformation.describe_stacks()["Stacks"]}
    assert {name: deployed[name] for name in STACKS} == dict.fromkeys(STACKS, "CREATE_COMPLETE")
    (sweep,) = [name for name in resources(endpoint, "AWS::Scheduler::Schedule").values() if name.endswith("sweep")]
    assert endpoint.client("scheduler").get_schedule(Name=sweep)["ScheduleExpression"] == "rate(1 minute)"

    # --fail: a difference is an exit code. By templates: moto's change sets do not say what they would change.
    compare = ("diff", "--fail", "--method=template")
    assert "Number of stacks with differences: 0" in operator.run(*compare, "--app", app)
    changed = synth(tmp_path / "changed", sweep_minutes=2)
    compute = "strandline-prod-compute"
    assert "rate(2 minutes)" in operator.run(*compare, compute, "--exclusively", "--app", changed, code=1)
    operator.run(*upload, compute, "--exclusively", "--app", changed)
    assert endpoint.client("scheduler").get_schedule(Name=sweep)["ScheduleExpression"] == "rate(2 minutes)"

    kept = {one for type_ in KEPT for one in resources(endpoint, type_).values() if "cdk-hnb" not in one}
    operator.run("destroy", "--all", "--force", "--app", changed)
    left = {stack["StackName"] for stack in cloudformation.describe_stacks()["Stacks"]}
    assert left == {"CDKToolkit"}
    assert remaining(endpoint) == kept


def remaining(endpoint: Endpoint) -> set[str]:
    """What is still there of everything that a stack made, of any kind, by its id; not what bootstrapping made."""
    client = endpoint.client
    names = [
        *(one["Name"] for one in client("s3").list_buckets()["Buckets"]),
        *(one["Name"] for one in client("glue").get_databases()["DatabaseList"]),
        *(one["ARN"] for one in client("secretsmanager").list_secrets()["SecretList"]),
        *(one["KeyId"] for one in client("kms").list_keys()["Keys"]),
        *(one["Id"] for one in client("cognito-idp").list_user_pools(MaxResults=9)["UserPools"]),
        *(one["FunctionName"] for one in client("lambda").list_functions()["Functions"]),
        *(one["UUID"] for one in client("lambda").list_event_source_mappings()["EventSourceMappings"]),
        *client("sqs").list_queues().get("QueueUrls", []),
        *(one["Name"] for one in client("scheduler").list_schedules()["Schedules"]),
        *(one["AlarmName"] for one in client("cloudwatch").describe_alarms()["MetricAlarms"]),
        *(one["ApiId"] for one in client("apigatewayv2").get_apis()["Items"]),
        *(one["RoleName"] for one in client("iam").list_roles()["Roles"]),
        *(
            one["id"]
            for one in client("emr-serverless").list_applications()["applications"]
            if one["state"] != "TERMINATED"  # listed for a while longer, on AWS too
        ),
        *(one["TopicArn"] for one in client("sns").list_topics()["Topics"]),
        *(one["logGroupName"] for one in client("logs").describe_log_groups()["logGroups"]),
        *(one["Name"] for one in client("events").list_event_buses()["EventBuses"] if one["Name"] != "default"),
    ]
    return {name for name in names if "cdk-hnb659fds" not in name and not name.startswith("CDKToolkit")}
