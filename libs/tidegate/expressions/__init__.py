"""Expressions over columns: SQL text that is checked before it runs, and evaluated once per batch by DuckDB."""
