"""Every AWS client of the lake gives up alike, and addresses buckets the way its endpoint understands."""

from __future__ import annotations

import pytest

from catalog.access.presigned_urls import PresignedUrls
from catalog.core.clients import client_for, make_client
from catalog.core.settings import Settings


def settings(**more: object) -> Settings:
    return Settings.model_validate({"stage": "dev", "region": "eu-west-1", "bucket": "lake", **more})


def test_a_client_gives_up_in_bounded_time() -> None:
    config = client_for(settings(store_timeout_s=7), "s3").meta.config
    assert (config.connect_timeout, config.read_timeout) == (5, 7)
    assert config.retries == {"mode": "standard", "total_max_attempts": 4}
    assert config.max_pool_connections == 32


@pytest.mark.parametrize(
    ("endpoint", "virtual_hosts", "style"),
    [(None, False, "auto"), (None, True, "virtual"), ("http://localhost:1", True, "path")],
)
def test_buckets_are_addressed_by_path_where_an_endpoint_stands_for_aws(
    endpoint: str | None, virtual_hosts: bool, style: str
) -> None:
    client = client_for(settings(endpoint_url=endpoint), "s3", virtual_hosts=virtual_hosts)
    assert client.meta.config.s3["addressing_style"] == style
    assert client.meta.region_name == "eu-west-1"


def test_credentials_given_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    options = {"region": "eu-west-1", "endpoint_url": None, "read_timeout_s": 1.0}
    url = make_client("s3", **options, credentials=("given", "secret", None)).generate_presigned_url(
        "get_object", Params={"Bucket": "lake", "Key": "a"}
    )
    assert "given" in url and "environment" not in url


def test_links_name_the_bucket_in_their_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert PresignedUrls(settings()).upload("landing/a", "00" * 32).url.startswith("https://lake.s3.")
