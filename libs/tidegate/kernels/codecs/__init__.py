"""Formats of values: bytes to typed Arrow columns, and back."""
