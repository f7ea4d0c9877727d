"""Queries over the views of operators: `views` defines these in DuckDB, `checking` lets only queries of them through,
and `running` runs a query in a process of its own, `process`, which has a deadline and a limit of memory.
"""
