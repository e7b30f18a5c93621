"""Queries that run on Spark: translation, query records, job runs."""
