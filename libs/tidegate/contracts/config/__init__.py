"""The types of configurations."""
