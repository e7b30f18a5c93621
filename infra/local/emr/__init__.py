"""EMR Serverless: job runs that are local Spark drivers."""
