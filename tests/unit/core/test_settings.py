"""Settings: layers in order, every problem at once, and no way to say one thing twice."""

from __future__ import annotations

import pytest

from catalog.core.errors import Invalid
from catalog.core.settings import FUNCTIONS, Settings, load_settings, variable_of

MINIMAL = {"STRANDLINE_BUCKET": "lake-1"}


def test_a_bucket_is_all_that_must_be_said() -> None:
    settings = load_settings(MINIMAL)
    assert (settings.bucket, settings.stage, settings.region) == ("lake-1", "dev", "us-east-1")


def test_a_later_layer_wins() -> None:
    assert load_settings(MINIMAL).log_level == "INFO"
    assert load_settings({**MINIMAL, "STRANDLINE_STAGE": "prod"}).log_level == "WARNING"
    explicit = {**MINIMAL, "STRANDLINE_STAGE": "prod", "STRANDLINE_LOG_LEVEL": "DEBUG"}
    assert load_settings(explicit).log_level == "DEBUG"


def test_a_function_has_defaults_of_its_own() -> None:
    for_sequencer = load_settings({**MINIMAL, "STRANDLINE_FUNCTION": "sequencer"})
    assert for_sequencer.store_timeout_s == FUNCTIONS["sequencer"]["store_timeout_s"]
    assert load_settings(MINIMAL).store_timeout_s == 30.0


def test_all_problems_are_listed_at_once_by_variable() -> None:
    wrong = {
        "STRANDLINE_STAGE": "production",
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
