"""Binding: resolves every table of a statement to a snapshot at one cut of the timeline."""
