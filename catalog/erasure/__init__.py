"""Erasure: rows leave every kept snapshot of a table, and its history stays verifiable."""

from catalog.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
