"""Reads the log with proof: commits, points in time, watermarks."""
