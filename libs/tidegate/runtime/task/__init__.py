"""What runs in a Spark task: one partition's share of a batch, and what it reads from and writes to."""
