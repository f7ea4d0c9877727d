"""Requests to Kafka and their answers: fetching, transactions, offsets, topics, and the options of a connection."""
