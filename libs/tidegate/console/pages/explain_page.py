"""The page that explains an emission."""

from __future__ import annotations

from fastapi.responses import Response

from tidegate.console.explanations import lines_of
from tidegate.console.pages.rendering import page
from tidegate.console.pages.sources import Sources
from tidegate.console.rows import refuse_too_much
from tidegate.runtime.doctor.explanation.finding import explain
from tidegate.runtime.doctor.explanation.recomputation import from_topic
from tidegate.state.delta_log.positions import Position

PATIENCE_S = 3.0
"""How long the page waits for the records of the batch."""


def explain_page(sources: Sources, name: str, at: Position) -> Response:
    """Return the page that explains the emission there. Raise UserError if the state is too large to recompute it."""
    application, config = sources.application, sources.config(name)
    refuse_too_much(sources.logs.of(name).after(None).data_files("state", at.partition))
    found = explain(application, name, at, from_topic(application, name, PATIENCE_S))
    return page("explain.html", name=name, at=at, found=found, lines=lines_of(found, config))
