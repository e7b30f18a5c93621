"""What the lake costs a month: quantities from the templates and a workload, times a price list kept here."""
