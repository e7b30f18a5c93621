"""Iceberg tables over the Glue catalog: `catalog.tables.manager.Tables` is the way in."""
