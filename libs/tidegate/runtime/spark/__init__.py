"""Spark as services use it: sessions, jobs, and the SQL views of the logs."""
