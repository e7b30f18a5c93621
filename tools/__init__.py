"""Set-up and upkeep of a checkout. Standard library only: it runs before anything is installed."""
