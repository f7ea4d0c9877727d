"""Test tools for users: per-record driver, conformance runner, strategies, laws."""
