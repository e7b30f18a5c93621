"""Iceberg tables over the Glue catalog: `catalog.tables.manager.Tables` is the way in."""

from catalog.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
