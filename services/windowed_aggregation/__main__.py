"""`python -m services.windowed_aggregation FILE`: runs every windowed aggregation of a configuration file."""

from services.service import main

main("windowed_aggregation")
