"""Measurements: every figure is a count, or a ratio against a peer taken in the same run. `make bench` runs them.

Tests measure no time; benchmarks assert no target. A figure that misses its target is reported as missed.
"""
