"""The page of the rows of an operator."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi.responses import Response

from tidegate.console import rows
from tidegate.console.pages.rendering import page as rendered
from tidegate.console.pages.sources import content_of
from tidegate.console.tables import cells_of
from tidegate.contracts.config import OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.contracts.log_schema import Kind as RowKind
from tidegate.operators.registry import kind_of
from tidegate.runtime.configuration.application import Application
from tidegate.state.delta_log.positions import Position

KINDS: dict[str, RowKind] = {"held": "state", "emissions": "emission", "late": "late", "rejected": "rejected"}
"""Kinds of rows that a page shows, by the last part of its path."""


def rows_page(application: Application, name: str, what: str, rules: OperatorRules, query: rows.Query) -> Response:
    """Return the page of the rows that the query asks for. `rules`: those of the operator, or of its step."""
    config, content = application.operators[name], content_of(application.operators[name])
    if query.kind == "state" and query.step is None and content[0][0] is not None:
        raise UserError("a pipeline holds records by step", value=name, remedy=f"add ?step={content[0][0]}")
    page = rows.read_page(application.lake / name, rules, query)
    asked = {"step": query.step, "batch": query.batch, "partition": query.partition}
    fixed, first_step = asked | {"batch": page.newest.batch}, {} if query.step else {"step": content[0][0]}
    return rendered(
        "browse.html",
        name=name,
        what=what,
        holds=kind_of(rules.kind).holds,
        page=page,
        table=cells_of(page.rows, config, rules),
        explained=_explained(name, page) if query.kind == "emission" else [],
        query=query,
        older=None if page.older is None else _address(name, what, fixed | {"before": page.older}),
        here=_address(name, what, fixed | {"before": query.before}),
        step_links=[(step, _address(name, what, asked | {"step": step})) for step, _ in content if step is not None],
        kind_links=[(each, _address(name, each, asked | (first_step if each == "held" else {}))) for each in KINDS],
    )


def _explained(name: str, page: rows.Page) -> list[str]:
    """Return the address of the explanation of each emission."""
    positions = (Position(**row) for row in page.rows.select(Position._fields).to_pylist())
    return [_address(name, "explain", {"at": position}) for position in positions]


def _address(name: str, what: str, parts: dict[str, Any]) -> str:
    """Return the address of a page of rows."""
    query = urlencode({part: value for part, value in parts.items() if value is not None})
    return f"/operators/{name}/{what}" + (f"?{query}" if query else "")
