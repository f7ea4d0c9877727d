"""The command of every service's container: run the operators of one kind."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from tidegate.application.target import load
from tidegate.contracts.errors import TidegateError, UserError
from tidegate.runtime.configuration.application import select_operators
from tidegate.runtime.service import TIMED, configure_logging, run
from tidegate.runtime.telemetry.log_lines import set_log_format
from tidegate.state.lease_decisions import Succession


def main(kind: str) -> None:
    """Run the operators of one kind, as a container does. Exit code 1 for a failure, 2 for what the user can fix.

    While another driver runs an operator, stand by: as many containers as wanted may run the same service.
    """
    parser = argparse.ArgumentParser(
        description=f"Runs every {kind} operator of a configuration file, or of a program such as app.py:app."
    )
    parser.add_argument("file", type=Path)
    configure_logging(TIMED)
    file = parser.parse_args().file
    try:
        application = load(file)
        set_log_format(application, TIMED)
        run(application, select_operators(application, None, [kind]), succession=Succession.STAND_BY)
    except TidegateError as error:
        logging.getLogger("tidegate").error("%s", error)
        sys.exit(2 if isinstance(error, UserError) else 1)
