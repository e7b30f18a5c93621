"""The lake's monthly cost: quantities from the templates and a workload, times catalog.core.prices."""
