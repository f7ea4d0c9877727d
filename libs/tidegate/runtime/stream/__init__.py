"""The operators on a streaming DataFrame: one query, one checkpoint, exactly once into the log."""
