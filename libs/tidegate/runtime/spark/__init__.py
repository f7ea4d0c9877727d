"""Spark for services: sessions, jobs, and the SQL views of operator logs."""
