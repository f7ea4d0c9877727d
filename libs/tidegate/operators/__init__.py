"""Operator kinds, one folder each, and what they share.

Every kind has an `absorb` of its own, and the two of windowed aggregation too. They look alike on purpose and are never
merged: the order of their steps is the specification of the kind.
"""
