"""Files that landed become rows: read, checked, committed once whatever happens, or kept aside with the reason."""
