"""The Kafka client: fetches, transactions, offsets, topics, and connection options."""
