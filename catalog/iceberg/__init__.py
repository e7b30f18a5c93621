"""The read model of Iceberg that tables, timeline, changes and query share: manifests, live files, deletes, file IO."""

from catalog.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
