"""The real CDK command line, against the embedded cloud, as docs/guide/deploy.md has it: bootstrap, diff, deploy,
upgrade, destroy, for a stage that goes without a trace and for one that keeps what must be kept.

Images are taken as built: their tags are in the repository that bootstrapping made, as after a push, so that the
command line neither builds nor asks for Docker.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from infra.app import build_app
from infra.local.assembly import LOCAL_CONTEXT, resources
from infra.local.emr import api as emr_api
from infra.local.endpoint import ACCOUNT, REGION, Endpoint
from infra.local.server import ApiServer
from infra.stage import ROOT
from tests.guides.commands import Bench, Invocation, Said, aws, script_of, sections

GUIDE = (ROOT / "docs" / "guide" / "deploy.md").read_text()
CDK = ROOT / "build" / "cdk" / "node_modules" / ".bin" / "cdk"
# The guide's sections that are run here; tests/e2e/test_guides.py runs the others.
FIRST = ("2. Bootstrap, once for an account and region", "3. Deploy")
UPGRADE, PRODUCTION, DESTROY = "6. Upgrade without downtime", "7. Production", "8. Destroy"
PINNED = f"registry.example/base@sha256:{'0' * 64}"
KEPT = {
    "AWS::Cognito::UserPool",
    "AWS::Glue::Database",
    "AWS::KMS::Key",
    "AWS::S3::Bucket",
    "AWS::SecretsManager::Secret",
}


class CommandLine:
    """`cdk` as an operator types it; only the endpoint, and that nobody is there to be asked, are others."""

    def __init__(self, server: ApiServer, home: Path) -> None:
        self.endpoint: Endpoint = server.endpoint
        self.apps: dict[str, str] = {}
        """By stage: what its app was synthesised to."""
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

    def __call__(self, asked: Invocation) -> Said:
        """From a script. `-c stage=…` chooses among the apps; images are there as soon as their repository is."""
        words, stage = asked.words, "dev"
        if "-c" in words:
            at = words.index("-c")
            stage, words = words[at + 1].removeprefix("stage="), words[:at] + words[at + 2 :]
        done = self.run(*words, stage=stage)
        if words[0] == "bootstrap":
            assert push_images(self.endpoint, self.apps["dev"]) >= 4  # the same for each stage
        return Said(done.returncode, done.stdout.encode(), done.stderr)

    def run(self, *words: str, stage: str) -> subprocess.CompletedProcess[str]:
        unasked = {
            "deploy": ["--method=direct", "--require-approval=never"],
            "diff": ["--method=template"],  # moto's change sets do not say what they would change
            "destroy": ["--force"],
        }
        return subprocess.run(
            [str(CDK), *words, *unasked.get(words[0], []), "--app", self.apps[stage], "--no-notices", "--no-color"],
            cwd=self._home,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=600,
        )


@pytest.fixture(scope="module")
def operator(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    assert CDK.exists(), "the CDK's command line is not there: `make setup` installs it"
    emr_api.patch()  # moto alone does not know the release that jobs run on
    return CommandLine(server, tmp_path_factory.mktemp("operator"))


@pytest.fixture(scope="module")
def bench(operator: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    tools = {
        "cdk": operator,
        "aws": aws(lambda service: operator.endpoint.client(service, "operator")),
        # What an upgrade would fetch and install is this checkout.
        "git": lambda _: Said(),
        "make": lambda _: Said(),
    }
    bench = Bench(tmp_path_factory.mktemp("guide"), tools)
    yield bench
    bench.close()


def synth(outdir: Path, stage: str, **changed: Any) -> str:
    stages = json.loads((ROOT / "cdk.json").read_text())["context"]["stages"]
    stages[stage] |= changed
    build_app({**LOCAL_CONTEXT, "stage": stage, "stages": stages}, str(outdir)).synth()
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
                with suppress(client.exceptions.ImageAlreadyExistsException):  # bootstrapping again changes nothing
                    client.put_image(
                        repositoryName=repository.replace("${AWS::Region}", REGION),
                        imageManifest=json.dumps(manifest),
                        imageTag=place["imageTag"],
                    )
                pushed += 1
    return pushed


@pytest.mark.timeout(1200)  # a Node process for each step: a minute, and on a loaded machine many
def test_a_lakes_life_by_the_guide(
    operator: CommandLine, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDK_VALIDATION", "false")
    endpoint = operator.endpoint

    def follow(*headings: str) -> None:
        bench.run("deploy", script_of(sections(GUIDE, *headings)), endpoint.environment("operator"))

    operator.apps = {"dev": synth(tmp_path / "dev", "dev"), "prod": synth(tmp_path / "unpinned", "prod")}
    follow(*FIRST)
    assert deployed(endpoint) == {"CDKToolkit": "CREATE_COMPLETE", **dict.fromkeys(stacks("dev"), "CREATE_COMPLETE")}
    subscribed = endpoint.client("sns").list_subscriptions()["Subscriptions"]
    assert {one["TopicArn"].rsplit(":", 1)[1] for one in subscribed if one["Protocol"] == "email"} == {
        "strandline-dev-alarms"
    }
    assert sweep(endpoint) == "rate(1 minute)"

    unchanged = operator.run("diff", "--fail", stage="dev")  # --fail: a difference is an exit code
    assert unchanged.returncode == 0, unchanged.stdout + unchanged.stderr
    operator.apps["dev"] = synth(tmp_path / "changed", "dev", sweep_minutes=2)
    different = operator.run("diff", "--fail", "strandline-dev-compute", "--exclusively", stage="dev")
    assert different.returncode == 1 and "rate(2 minutes)" in different.stdout + different.stderr
    follow(UPGRADE)
    assert sweep(endpoint) == "rate(2 minutes)"

    (bucket,) = (one for one in remaining(endpoint) if one.startswith("strandline-dev-storage-lake"))
    for body in (b"one", b"two"):  # two versions
        endpoint.client("s3").put_object(Bucket=bucket, Key="landing/bronze/tides/tide.jsonl", Body=body)
    follow(DESTROY)
    assert set(deployed(endpoint)) == {"CDKToolkit"}
    assert remaining(endpoint) == set()

    refused = operator.run("deploy", "--all", stage="prod")
    assert refused.returncode != 0 and "set function_base in cdk.json" in refused.stdout + refused.stderr
    assert set(deployed(endpoint)) == {"CDKToolkit"}
    operator.apps["prod"] = synth(tmp_path / "prod", "prod", function_base=PINNED, job_base=PINNED)
    push_images(endpoint, operator.apps["prod"])
    follow(PRODUCTION)  # in another account, says the guide: in this one nothing is left
    assert {name for name in deployed(endpoint) if name != "CDKToolkit"} == stacks("prod")
    kept = {one for type_ in KEPT for one in resources(endpoint, type_).values() if "cdk-hnb" not in one}
    gone = operator.run("destroy", "--all", stage="prod")
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert set(deployed(endpoint)) == {"CDKToolkit"}
    assert remaining(endpoint) == kept


def test_every_command_of_the_guide_is_run_somewhere() -> None:
    """Here, or by tests/e2e/test_guides.py; only what comes before the first section is the reader's own."""
    from tests.e2e.test_guides import ONLY

    known = script_of(sections(GUIDE, *FIRST, UPGRADE, PRODUCTION, DESTROY, *ONLY["deploy.md"])).splitlines()
    alone = [line for line in script_of(GUIDE).splitlines() if line not in known]
    assert alone == ["alias cdk='python3 -m tools.setup.run cdk'", "export AWS_REGION=eu-west-1"]


def deployed(endpoint: Endpoint) -> dict[str, str]:
    stacks = endpoint.client("cloudformation").describe_stacks()["Stacks"]
    return {stack["StackName"]: stack["StackStatus"] for stack in stacks}


def stacks(stage: str) -> set[str]:
    return {f"strandline-{stage}-{part}" for part in ("storage", "compute", "api", "jobs", "observe")}


def sweep(endpoint: Endpoint) -> str:
    """How often it is."""
    (name,) = [name for name in resources(endpoint, "AWS::Scheduler::Schedule").values() if name.endswith("sweep")]
    return str(endpoint.client("scheduler").get_schedule(Name=name)["ScheduleExpression"])


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
