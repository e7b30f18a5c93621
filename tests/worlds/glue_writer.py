"""A process that appends to an Iceberg table through Glue with pyiceberg alone. Light, for it is started many times."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog.glue import GlueCatalog


def glue_catalog(url: str, region: str, bucket: str) -> GlueCatalog:
    properties = {"warehouse": f"s3://{bucket}/tables"}
    for service in ("glue", "s3"):
        properties |= {
            f"{service}.endpoint": url,
            f"{service}.region": region,
            f"{service}.access-key-id": "writer",
            f"{service}.secret-access-key": "embedded",
        }
    return GlueCatalog("lake", **properties)


def append(url: str, region: str, bucket: str, table: str, writer: int, times: int) -> None:
    iceberg_table = glue_catalog(url, region, bucket).load_table(table)
    for number in range(times):
        iceberg_table.append(pa.table({"writer": [writer], "number": [number]}))
