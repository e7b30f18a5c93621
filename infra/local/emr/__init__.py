"""EMR Serverless: runs each job run as a local Spark driver."""
