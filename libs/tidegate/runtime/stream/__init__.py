"""Operators on a streaming DataFrame: one query, one checkpoint, exactly-once commits to the operator log."""
