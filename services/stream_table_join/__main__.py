"""`python -m services.stream_table_join FILE`: run all stream_table_join operators of a configuration file."""

from services.service import main

main("stream_table_join")
