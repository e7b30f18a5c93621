"""The Merkle timeline: every commit to every table, and every move of a reference, as a leaf of one tree."""
