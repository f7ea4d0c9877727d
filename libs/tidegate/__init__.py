"""Tidegate: event-time state for Spark and Delta Lake."""
