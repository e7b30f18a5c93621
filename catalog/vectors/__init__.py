"""Vector and full-text search: LanceDB tables on S3, each derived from one text column of an Iceberg table.

    embedding   text to unit vectors, with one of two models
    head        one small object per vector table: its definition, and which Lance version holds which snapshot
    refresh     applies the source's changes: deletes, embeds and adds rows, then replaces the head by compare-and-swap
    search      vector, full text or both, filtered before the top k, as of any snapshot that has a version
    ranking     the same versions searched by SQL queries
    manager     `Vectors`: every operation on vector tables

The Iceberg table is the source of truth: a vector table can be dropped and built again from it.
"""

from catalog.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
