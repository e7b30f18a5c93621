"""What the lake costs a month: quantities from the templates and a workload, times the prices of catalog.prices."""
