"""`strandline doctor`: what is wrong with this machine, an account before a deployment, or a deployed lake."""
