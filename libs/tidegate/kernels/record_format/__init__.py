"""Kafka's record batches (format 2) as columns, decoded and encoded."""
