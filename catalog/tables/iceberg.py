"""Opens the Iceberg catalog: tables in AWS Glue, their files in the lake's bucket."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog

from catalog import places
from catalog.settings import Settings


def open_catalog(settings: Settings) -> Catalog:
    """The lake's catalog. Credentials are the environment's; makes no request."""
    properties = {
        "client.region": settings.region,
        "warehouse": f"s3://{settings.bucket}/{places.TABLES.rstrip('/')}",
        "s3.connect-timeout": "5",
        "s3.request-timeout": f"{settings.store_timeout_s:g}",
    }
    if settings.endpoint_url:
        properties |= {
            "glue.endpoint": settings.endpoint_url,
            "s3.endpoint": settings.endpoint_url,
            "s3.force-virtual-addressing": "false",
        }
    # pyiceberg's own client would try eleven times, with pauses of up to 20 s.
    make: Any = boto3.client
    glue = make(
        "glue",
        region_name=settings.region,
        endpoint_url=settings.endpoint_url,
        config=Config(
            connect_timeout=5,
            read_timeout=settings.store_timeout_s,
            max_pool_connections=32,
            retries={"mode": "standard", "max_attempts": 3},
        ),
    )
    return GlueCatalog("lake", client=glue, **properties)
