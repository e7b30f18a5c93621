"""Settings: layers in order, every problem at once, and no way to say one thing twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.errors import Invalid
from catalog.core.settings import FUNCTIONS, Settings, load_settings, variable_of
from infra.stage import Stage

MINIMAL = {"STRANDLINE_BUCKET": "lake-1", "AWS_REGION": "eu-west-1"}


def test_a_bucket_and_a_region_are_all_that_must_be_said() -> None:
    settings = load_settings(MINIMAL)
    assert (settings.bucket, settings.stage, settings.region) == ("lake-1", "dev", "eu-west-1")


def test_no_region_is_assumed() -> None:
    """A job in Ireland that silently speaks to Virginia finds no bucket, or the wrong one."""
    with pytest.raises(Invalid, match="AWS_REGION"):
        load_settings({"STRANDLINE_BUCKET": "lake-1"})


@given(st.from_regex(r"\A[a-z][a-z0-9]{1,11}\Z"))
def test_every_stage_that_can_be_deployed_can_run(name: str) -> None:
    stage = Stage(name=name, origin="a/b", retain_data=False, log_retention_days=7, sweep_minutes=1)
    assert load_settings({**MINIMAL, "STRANDLINE_STAGE": stage.name}).stage == name


@pytest.mark.parametrize("stage", ["dev", "staging", "prod"])
def test_requests_and_queries_are_logged_in_every_stage(stage: str) -> None:
    """They are logged at INFO."""
    named = {**MINIMAL, "STRANDLINE_STAGE": stage}
    assert load_settings(named).log_level == "INFO"
    assert load_settings({**named, "STRANDLINE_LOG_LEVEL": "DEBUG"}).log_level == "DEBUG"


def test_a_function_has_defaults_of_its_own() -> None:
    for_sequencer = load_settings({**MINIMAL, "STRANDLINE_FUNCTION": "sequencer"})
    assert for_sequencer.store_timeout_s == FUNCTIONS["sequencer"]["store_timeout_s"]
    assert load_settings(MINIMAL).store_timeout_s == 30.0


def test_all_problems_are_listed_at_once_by_variable() -> None:
    wrong = {
        "STRANDLINE_STAGE": "Production!",
        "STRANDLINE_SIGNER": "password",
        "STRANDLINE_STORE_TIMEOUT_S": "soon",
        "AWS_ENDPOINT_URL": "localhost:4566",
    }
    with pytest.raises(Invalid) as caught:
        load_settings(wrong)
    for variable in (*wrong, "STRANDLINE_BUCKET"):
        assert variable in caught.value.message


def test_an_empty_variable_is_an_unset_one() -> None:
    assert load_settings({**MINIMAL, "AWS_ENDPOINT_URL": ""}).endpoint_url is None


def test_every_field_has_one_variable_of_its_own() -> None:
    names = [variable_of(field) for field in Settings.model_fields]
    assert len(set(names)) == len(names)
