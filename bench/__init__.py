"""Measurements: every figure is a count, or a ratio against a peer taken in the same run. `make bench` runs them.

Tests never time anything; here nothing is asserted. A figure that misses its target is shown as missed.
"""
