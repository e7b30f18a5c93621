"""A witness for other logs (c2sp.org/tlog-witness): its records in S3, its service and its HTTP server."""
