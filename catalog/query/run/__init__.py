"""Running a plan in this process: the engine, searches, results and receipts."""
