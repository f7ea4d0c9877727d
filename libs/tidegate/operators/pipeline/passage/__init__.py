"""The passage of a batch through the steps: its flows and tables, and where the steps stand before and after it."""
