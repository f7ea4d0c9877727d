"""A simulated Kafka broker."""
