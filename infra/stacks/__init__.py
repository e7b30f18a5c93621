"""One module per stack. Stacks declare; what runs on them lives in functions/, spark_jobs/ and catalog/."""
