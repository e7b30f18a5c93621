"""SQL over the lake's tables: parsed once, bound to one cut of the timeline, answered where it is cheapest.

Reads only. Nothing here writes to a table, to the timeline or to local disk.
"""
