"""`python -m services.table_history FILE`: runs every table_history operator of a configuration file."""

from services.service import main

main("table_history")
