"""Reading data files: columns by field id, row groups by statistics, objects verified against attestations."""
