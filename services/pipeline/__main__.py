"""`python -m services.pipeline FILE`: run all pipelines of a configuration file."""

from services.service import main

main("pipeline")
