"""The page that explains an emission."""

from __future__ import annotations

from fastapi.responses import Response

from tidegate.console.explanations import lines_of
from tidegate.console.pages.rendering import page
from tidegate.console.rows import refuse_too_much
from tidegate.contracts.config import OperatorConfig
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.explanation.finding import explain
from tidegate.runtime.doctor.explanation.recomputation import from_topic
from tidegate.state.delta_log.positions import Position
from tidegate.state.earlier_batches import log_after
from tidegate.state.lake.opening import open_lake

PATIENCE_S = 3.0
"""How long the page waits for the records of the batch."""


def explain_page(application: Application, name: str, config: OperatorConfig, at: Position) -> Response:
    """Return the page that explains the emission there. Raise UserError if the state is too large to recompute it."""
    refuse_too_much(log_after(open_lake(application.lake / name), None).data_files("state", at.partition))
    found = explain(application, name, at, from_topic(application, name, PATIENCE_S))
    return page("explain.html", name=name, at=at, found=found, lines=lines_of(found, config))
