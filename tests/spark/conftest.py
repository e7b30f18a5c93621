"""One embedded API and one Spark session for all tests here: a session costs seconds, a table does not.

They go with the folder, not with the run: another test of this process may want a cloud of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import SparkSession

from catalog.core.settings import Settings, load_settings
from infra.local.endpoint import Endpoint
from infra.local.server import ApiServer
from spark_jobs.session import spark_session

BUCKET = "spark-tests"


@pytest.fixture(scope="package")
def endpoint() -> Iterator[Endpoint]:
    server = ApiServer()
    server.start()
    server.endpoint.client("s3").create_bucket(Bucket=BUCKET)
    yield server.endpoint
    server.stop()


@pytest.fixture(scope="package")
def settings(endpoint: Endpoint) -> Settings:
    return load_settings({**endpoint.environment("spark"), "STRANDLINE_BUCKET": BUCKET})


@pytest.fixture(scope="package")
def spark(endpoint: Endpoint, settings: Settings) -> Iterator[SparkSession]:
    session = spark_session("tests", settings, local=True)
    with pytest.MonkeyPatch.context() as patch:  # the JVM keeps what it is started with; other tests must not see it
        for name, value in endpoint.environment("spark").items():
            patch.setenv(name, value)
        opened = session.__enter__()
    # Tables here have a handful of rows: what plans them again while they run costs more than the run.
    opened.conf.set("spark.sql.shuffle.partitions", "1")
    opened.conf.set("spark.sql.adaptive.enabled", "false")
    yield opened
    session.__exit__(None, None, None)


@pytest.fixture(scope="package")
def iceberg(endpoint: Endpoint) -> Catalog:
    """The same tables through pyiceberg: a second implementation to check Spark against."""
    variables = endpoint.environment("pyiceberg")
    properties = {"warehouse": f"s3://{BUCKET}/tables"}
    for service in ("glue", "s3"):
        properties |= {
            f"{service}.endpoint": endpoint.url,
            f"{service}.region": endpoint.region,
            f"{service}.access-key-id": variables["AWS_ACCESS_KEY_ID"],
            f"{service}.secret-access-key": variables["AWS_SECRET_ACCESS_KEY"],
        }
    return load_catalog("lake", type="glue", **properties)


@pytest.fixture
def namespace(iceberg: Catalog) -> str:
    """A database that no other test knows."""
    name = f"t{uuid.uuid4().hex[:12]}"
    iceberg.create_namespace(name)
    return name
