"""The page of the rows of an operator."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi.responses import Response

from tidegate.console import rows
from tidegate.console.pages.rendering import page as rendered
from tidegate.console.pages.sources import Sources, content_of
from tidegate.console.tables import cells_of
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.contracts.log_schema import Kind as RowKind
from tidegate.operators.registry import kind_of
from tidegate.state.delta_log.positions import Position

LONGEST_KEY = 1_000
"""Most bytes of a key in an address."""

KINDS: dict[str, RowKind] = {"held": "state", "emissions": "emission", "late": "late", "rejected": "rejected"}
"""Kinds of rows that a page shows, by the last part of its path."""


def rows_page(sources: Sources, name: str, what: str, rules: OperatorRules, query: rows.Query) -> Response:
    """Return the page of the rows that the query asks for. `rules`: those of the operator, or of its step."""
    config, log = sources.config(name), sources.logs.of(name)
    content = content_of(config)
    if query.kind == "state" and query.step is None and content[0][0] is not None:
        raise UserError("a pipeline holds records by step", value=name, remedy=f"add ?step={content[0][0]}")
    page = rows.read_page(log.after(query.batch), rules, query)
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
        batches=log.readable(),
        keys=_key_links(config, name, page, query),
        older=None if page.older is None else address_of(name, what, fixed | {"before": page.older}),
        here=address_of(name, what, fixed | {"before": query.before}),
        step_links=[(step, address_of(name, what, asked | {"step": step})) for step, _ in content if step is not None],
        kind_links=[(each, address_of(name, each, asked | (first_step if each == "held" else {}))) for each in KINDS],
    )


def _key_links(config: OperatorConfig, name: str, page: rows.Page, query: rows.Query) -> list[str]:
    """Return the address of the time line of each row's key; none for a null key, nor for a step that has no keys."""
    steps, shown = config.operators, [each for each in ("key", "partition", "step") if each in page.rows.column_names]
    links = []
    for row in page.rows.select(shown).to_pylist():
        key, step = row["key"], query.step or row.get("step")
        has_line = key is not None and len(key) <= LONGEST_KEY and (not steps or step in steps)
        asked = {"step": step if steps else None, "batch": query.batch, "partition": row["partition"]}
        links.append(address_of(name, "key", asked | {"key": f"0x{key.hex()}"}) if has_line else "")
    return links


def _explained(name: str, page: rows.Page) -> list[str]:
    """Return the address of the explanation of each emission."""
    positions = (Position(**row) for row in page.rows.select(Position._fields).to_pylist())
    return [address_of(name, "explain", {"at": position}) for position in positions]


def address_of(name: str, what: str, parts: dict[str, Any]) -> str:
    """Return the address of a page of an operator."""
    query = urlencode({part: value for part, value in parts.items() if value is not None})
    return f"/operators/{name}/{what}" + (f"?{query}" if query else "")
