"""The tables of the catalog, with their metadata files: one request for each hundred."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog

from catalog.core.aws_errors import translate_errors


def listed_tables(catalog: Catalog) -> dict[str, str | None]:
    """Every table of the catalog, and its metadata file; None if the listing does not have it."""
    with translate_errors("the catalog"):
        namespaces = [".".join(namespace) for namespace in catalog.list_namespaces()]
        if not isinstance(catalog, GlueCatalog):
            return {".".join(table): None for name in namespaces for table in catalog.list_tables(name)}
        return {
            f"{name}.{table['Name']}": table["Parameters"].get("metadata_location")
            for name in namespaces
            for page in catalog.glue.get_paginator("get_tables").paginate(DatabaseName=name)
            for table in page["TableList"]
            if table.get("Parameters", {}).get("table_type", "").lower() == "iceberg"
        }
