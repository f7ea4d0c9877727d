"""Operator kinds, one folder each, and what they share."""
