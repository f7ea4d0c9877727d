"""A simulated broker."""
