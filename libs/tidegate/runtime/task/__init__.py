"""The code that runs in a Spark task: one partition's share of a batch, with its input and output."""
