"""Spark for services: sessions, jobs, and the SQL views of operator logs."""

from tidegate.contracts.extras import require

require("pyspark")
