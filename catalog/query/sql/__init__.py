"""Parsing a statement: its tables, AS OF clauses, supported clauses and search operators."""
