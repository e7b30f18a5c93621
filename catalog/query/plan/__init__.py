"""Planning: what a statement needs of each table, which files might hold it, and the route."""
