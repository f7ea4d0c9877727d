"""Commands that run operators and change how they run."""
