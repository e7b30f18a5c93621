"""A feed that cannot be read fails with an error of the lake's, so its reader knows whether to try again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.core.errors import NotFound, Unavailable
from catalog.lake import Lake
from infra.local.faults import disconnect
from infra.local.requests import Request
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on


@pytest.fixture
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as lake:
        lake.iceberg.create_namespace(_table(lake).split(".")[0])
        lake.tables.create(_table(lake), {"id": "long"})
        lake.tables.insert(_table(lake), [{"id": 1}])
        lake.sequencer.catch_up([_table(lake)])
        yield lake


def _table(lake: Lake) -> str:
    return f"{lake.settings.bucket.replace('-', '_')}.t"


def _is_read(request: Request) -> bool:
    return request.method == "GET" and request.path.endswith(".parquet")


def test_a_lost_request_is_unavailable_and_the_next_read_has_everything(server: ApiServer, lake: Lake) -> None:
    with server.faults.fault(_is_read, disconnect) as fault, pytest.raises(Unavailable):
        list(lake.changes(_table(lake)))
    assert fault.hits
    assert [changes.changes.num_rows for changes in lake.changes(_table(lake))] == [1]


def test_a_file_that_is_gone_is_not_found(server: ApiServer, lake: Lake) -> None:
    objects = lake.s3.list_objects_v2(Bucket=lake.settings.bucket, Prefix="tables/")["Contents"]
    (data,) = [item["Key"] for item in objects if item["Key"].endswith(".parquet")]
    lake.s3.delete_object(Bucket=lake.settings.bucket, Key=data)
    with pytest.raises(NotFound):
        list(lake.changes(_table(lake)))
