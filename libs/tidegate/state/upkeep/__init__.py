"""Keep an operator log small: compaction, retention, and what no commit names."""
