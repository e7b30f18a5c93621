"""Deterministic simulation: the whole lake in one thread, with a virtual clock and one seed for everything."""
