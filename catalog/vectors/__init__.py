"""Search by meaning and by words: LanceDB tables on S3, each derived from one column of an Iceberg table.

    embedding   text to unit vectors; which model is a seam
    head        one small object per vector table: what it is, and which Lance version stands for which snapshot
    refresh     the change feed applied: rows deleted, rows embedded and added, then one compare-and-swap
    search      vector, full text or both, filtered before the top k, as of any snapshot that was refreshed to
    manager     `Vectors`, where these meet

The Iceberg table stays the truth: a vector table can be dropped and made again from it.
"""
