"""Raises, as a job does that meets bad data."""

raise ValueError("note 17 has no title")
