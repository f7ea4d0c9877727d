"""The windows operator: to come; see README.md."""
