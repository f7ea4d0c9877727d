"""`python -m services.windowed_aggregation FILE`: run all windowed aggregations of a configuration file."""

from services.service import main

main("windowed_aggregation")
