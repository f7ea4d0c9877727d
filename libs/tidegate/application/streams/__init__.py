"""Streams, windows and tables, and the methods that turn them into operators.

Each method returns a new frozen value; only `to` and `keep` register an operator. Unsound combinations have no method.
"""
