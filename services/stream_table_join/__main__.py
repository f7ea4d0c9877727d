"""`python -m services.stream_table_join FILE`: runs every stream_table_join operator of a configuration file."""

from services.service import main

main("stream_table_join")
