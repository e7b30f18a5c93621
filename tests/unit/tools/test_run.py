"""The environment of commands that run through set-up."""

from __future__ import annotations

import pytest

from tools.setup.run import environment


def test_cdk_may_ask_an_instance_for_its_credentials_and_nothing_else_looks_for_an_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)  # tests themselves run through set-up
    assert "AWS_EC2_METADATA_DISABLED" not in environment("cdk")
    assert environment("pytest")["AWS_EC2_METADATA_DISABLED"] == "true"
