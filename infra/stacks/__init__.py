"""The CDK stacks, and the constructs that they share. The code that runs is in functions/, spark_jobs/ and catalog/."""
