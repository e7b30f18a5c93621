"""The Merkle timeline: every commit to every table, and every move of a reference, as a leaf of one tree."""

from catalog.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
