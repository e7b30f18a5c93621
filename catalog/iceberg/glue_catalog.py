"""Opens the Iceberg catalog: tables in AWS Glue, their files in the lake's bucket."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog

from catalog.core import s3_layout
from catalog.core.clients import client_for
from catalog.core.settings import Settings


def open_catalog(settings: Settings) -> Catalog:
    """The lake's catalog, with the credentials of the environment. Makes no request."""
    properties = {
        "client.region": settings.region,
        "warehouse": f"s3://{settings.bucket}/{s3_layout.TABLES.rstrip('/')}",
        "s3.connect-timeout": "5",
        "s3.request-timeout": f"{settings.store_timeout_s:g}",
    }
    if settings.endpoint_url:
        properties |= {
            "glue.endpoint": settings.endpoint_url,
            "s3.endpoint": settings.endpoint_url,
            "s3.force-virtual-addressing": "false",
        }
    # pyiceberg's own client would make eleven attempts, with pauses of up to 20 s.
    glue = client_for(settings, "glue")
    return GlueCatalog("lake", client=glue, **properties)
