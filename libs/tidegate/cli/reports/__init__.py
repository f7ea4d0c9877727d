"""Figures that commands show."""
