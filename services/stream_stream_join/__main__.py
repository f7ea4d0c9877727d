"""`python -m services.stream_stream_join FILE`: run all stream-stream joins of a configuration file."""

from services.service import main

main("stream_stream_join")
