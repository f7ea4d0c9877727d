"""`python -m services.deduplicate FILE`: run all deduplicate operators of a configuration file."""

from services.service import main

main("deduplicate")
