"""Untrusted bytes to Arrow batches: CSV, JSON, Arrow, Parquet, Markdown notes, media; each bounded and validated."""

from catalog.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
