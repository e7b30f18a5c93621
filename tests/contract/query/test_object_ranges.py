"""Byte ranges come with obstore; what it cannot read, the lake's S3 client reads or explains."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import obstore
import pytest
from botocore.exceptions import ClientError

from catalog.iceberg import ObjectStore
from catalog.lake import Lake
from catalog.query.scan.object_ranges import ObjectRanges
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on

DATA = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as made:
        yield made


@pytest.fixture
def store(lake: Lake) -> ObjectStore:
    return lake.tables.table_store.io.store


@pytest.fixture
def path(lake: Lake, store: ObjectStore) -> str:
    path = f"s3://{lake.settings.bucket}/tables/ranges/{uuid4().hex} with a space+%.parquet"
    store.put(path, DATA)
    return path


def test_a_range_is_read_without_botocore(store: ObjectStore, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = ObjectRanges(store)
    monkeypatch.setattr(store, "get_range", None)
    assert ranges.get_range(path, 3, 5000) == DATA[3:5000]
    assert bytes(ranges.get_buffer(path, 0, len(DATA))) == DATA


def test_a_missing_object_is_not_found(store: ObjectStore, path: str) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        ObjectRanges(store).get_range(f"{path}.gone", 0, 10)


def test_the_reason_of_a_failure_is_botocores(store: ObjectStore, path: str) -> None:
    with pytest.raises(ClientError, match="InvalidRange"):
        ObjectRanges(store).get_range(path, len(DATA) + 1, len(DATA) + 9)


def test_a_read_that_obstore_cuts_short_is_repeated(
    store: ObjectStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore, "get_range", lambda *_, **__: obstore.Bytes(b"short"))
    assert ObjectRanges(store).get_range(path, 0, 100) == DATA[:100]
