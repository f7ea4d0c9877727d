"""The `tidegate` command with Spark started beforehand: it touches nothing before a line comes on standard input.

Called with the configuration file, `warm` or `cold`, then the command's arguments. Starting Spark is what takes long,
and the next service can do that while one is being killed; a cold one starts its own, beside its first batches.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

from tidegate.cli.main import main
from tidegate.runtime.configuration.application import load
from tidegate.runtime.service import session
from tidegate.runtime.spark.jobs import SparkJobs


def stand_by(file: Path, warmth: str, arguments: list[str]) -> None:
    """The command has run, on a session that was warm when the line came, or cold."""
    application = load(file)
    with session(application) if warmth == "warm" else nullcontext() as spark:
        for config in application.operators.values() if spark else ():
            SparkJobs(spark).warm_up(config)
        if sys.stdin.readline():  # empty: whoever would have given it is gone
            main(arguments)


if __name__ == "__main__":
    stand_by(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
