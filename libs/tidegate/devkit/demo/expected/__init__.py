"""What the demo's operators must give, computed without Tidegate."""
