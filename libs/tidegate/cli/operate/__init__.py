"""Commands that run operators and change their configuration."""
