"""Running an application in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.application.loading import let_workers_import
from tidegate.runtime import service
from tidegate.runtime.telemetry.log_lines import set_log_format

if TYPE_CHECKING:
    from tidegate.application.application import Application


def run(application: Application) -> None:
    """Run all operators of the application until a signal arrives."""
    configuration = application.configuration()
    let_workers_import(application.folder)
    service.configure_logging(service.TIMED)
    set_log_format(configuration, service.TIMED)
    service.run(configuration, list(configuration.operators))
