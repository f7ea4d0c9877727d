"""Kafka's record batches (format 2): decoding into columns, and encoding from columns."""
