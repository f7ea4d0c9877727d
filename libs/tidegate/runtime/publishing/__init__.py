"""What goes to output topics: which topics, how rows become records, dead letters, and exactly one publication."""
