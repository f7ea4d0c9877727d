"""Stateless steps whose expressions are evaluated on columns: those that somebody reads, and no others."""
