"""Keep an operator log small: compaction, retention, clean-up of old versions and of files that no commit names."""
