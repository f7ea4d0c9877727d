"""The `tidegate` command with Spark started beforehand: it touches nothing before a line comes on standard input.

Called with the configuration file, then the command's arguments. Starting Spark is what takes long, and the next
service can do that while one is being killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from services.service import session
from tidegate.cli.main import main
from tidegate.runtime.application import load
from tidegate.runtime.spark.jobs import Jobs


def stand_by(file: Path, arguments: list[str]) -> None:
    """The command has run, on a session that was warm when the line came."""
    application = load(file)
    with session(application) as spark:
        for config in application.operators.values():
            Jobs(spark).warm_up(config)
        if sys.stdin.readline():  # empty: whoever would have given it is gone
            main(arguments)


if __name__ == "__main__":
    stand_by(Path(sys.argv[1]), sys.argv[2:])
