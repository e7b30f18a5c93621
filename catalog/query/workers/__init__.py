"""Queries in processes of their own, each with a hard limit of memory, processor time and time. See docs/adr/0011."""
