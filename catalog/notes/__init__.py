"""The rules of the notes application: medallion layers, concepts, graph, summaries. Pure functions."""

from catalog.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
