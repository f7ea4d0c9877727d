"""Streams and tables that begin with a streaming DataFrame of Spark, and the queries that they become."""
