"""`python -m services.table_history FILE`: run all table_history operators of a configuration file."""

from services.service import main

main("table_history")
