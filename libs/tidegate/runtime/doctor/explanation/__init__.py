"""Explanations of emissions: why an operator emitted a record, recomputed from its log and its input.

`recomputation` runs a batch again from the state before it. `finding` reads from a log what an explanation needs, and
`explanation` decides from that what is said.
"""
