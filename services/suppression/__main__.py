"""`python -m services.suppression FILE`: run all suppression operators of a configuration file."""

from services.service import main

main("suppression")
