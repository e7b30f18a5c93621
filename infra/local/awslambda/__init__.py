"""Lambda: the deployed functions, run in awslambdaric worker processes."""
