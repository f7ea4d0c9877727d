"""Compiled structures and primitives over flat arrays: arrays in, arrays out."""
