"""The state protocol: decisions, operator log, local state, recovery, compaction."""
