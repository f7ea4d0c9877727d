"""Oracles that check the invariants of a simulated run."""
