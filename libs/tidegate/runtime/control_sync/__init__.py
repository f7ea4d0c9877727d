"""What the control database is told of a log: each commit as it happens, and earlier ones later."""
