"""What simulated drivers and tasks reach outside of themselves: Kafka, the lake, Spark and their machine."""
