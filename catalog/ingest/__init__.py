"""Landed files to rows: each file is read, validated and committed exactly once, or quarantined with the reason."""

from catalog.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
