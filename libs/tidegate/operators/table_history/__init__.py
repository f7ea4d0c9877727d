"""The table history operator: to come; see README.md."""
