"""Figures that commands print."""
