"""Rows of the lake itself, for SHOW, DESCRIBE, information_schema and the functions in FROM such as `history('t')`."""
