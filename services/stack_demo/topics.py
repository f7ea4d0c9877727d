"""`python -m services.stack_demo.topics FILE`: create all topics of the file that do not exist.

Services refuse to start without their topics, so the stack creates them first.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tidegate.devkit.demo.departures import PARTITIONS
from tidegate.devkit.demo.topics import create_missing
from tidegate.runtime.configuration.application import load


def main() -> None:
    """Create the missing topics; existing topics are not changed."""
    for topic in create_missing(load(Path(sys.argv[1]))):
        print(f"created {topic}, {PARTITIONS} partitions")


if __name__ == "__main__":
    main()
