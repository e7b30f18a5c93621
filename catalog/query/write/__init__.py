"""Statements that write: their SELECTs run as queries, and the lake's table API commits what they return."""
