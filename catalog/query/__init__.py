"""SQL queries over the lake's tables: parsed, bound to one cut of the timeline, and run on the cheapest route.

Queries only read: they never write to a table, to the timeline or to local disk.
"""

from catalog.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
