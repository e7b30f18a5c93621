"""Verifies the tree, its indexes, the published copy and the tables' objects. Reads only."""
