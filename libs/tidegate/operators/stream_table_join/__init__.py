"""The stream-table join operator: to come; see README.md."""
