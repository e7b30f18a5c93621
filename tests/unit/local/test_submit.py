"""What a job is given: only what EMR Serverless gives, and what its application names."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.local.emr.submit import plan
from infra.local.endpoint import Endpoint
from tests.infra.stages import STAGES, of_type, text_of

DRIVER = {"sparkSubmit": {"entryPoint": "local:///opt/strandline/spark_jobs/compact.py"}}
VARIABLES = ("spark.emr-serverless.driverEnv.", "spark.executorEnv.")


def test_emr_gives_a_job_no_region(tmp_path: Path) -> None:
    given = plan(DRIVER, [], Endpoint("http://127.0.0.1:1"), "job/compact", tmp_path).environment
    assert not {"AWS_REGION", "AWS_DEFAULT_REGION"} & given.keys()
    named = [{f"{VARIABLES[0]}AWS_REGION": "eu-west-1"}]
    told = plan(DRIVER, named, Endpoint("http://127.0.0.1:1"), "job/compact", tmp_path).environment
    assert told["AWS_REGION"] == "eu-west-1"


@pytest.mark.parametrize("stage", STAGES)
def test_the_application_names_its_region_to_driver_and_executors(stage: str) -> None:
    (application,) = of_type(stage, "AWS::EMRServerless::Application").values()
    (defaults,) = application["RuntimeConfiguration"]
    for scope in VARIABLES:
        assert text_of(defaults["Properties"][f"{scope}AWS_REGION"]) == "${AWS::Region}"
