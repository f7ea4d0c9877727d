"""The page on which queries are written, with their results, and the files of these."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlencode

from fastapi import FastAPI
from fastapi.responses import Response

from tidegate.console.pages.parameters import BatchNumber
from tidegate.console.pages.rendering import page
from tidegate.console.pages.sources import Sources
from tidegate.console.sql.results import FILES, cells_of, chart_of
from tidegate.console.sql.running import run
from tidegate.console.sql.views import columns_of, views_of
from tidegate.contracts.errors import UserError
from tidegate.state.delta_log.log_version import LogVersion

PAGE_ROWS, FILE_ROWS = 500, 100_000
"""Most rows that the page shows, and that a file has."""

LONGEST_QUERY = 3_000
"""Most characters of a query: addresses have them."""


class Asked(NamedTuple):
    """What an address asks for: a query, as of a batch of an operator; without a batch, of what is there now."""

    query: str
    operator: str | None = None
    batch: int | None = None

    @property
    def address(self) -> str:
        """Return the part of the address that says it."""
        return urlencode({name: value for name, value in self._asdict().items() if value is not None})


def add_sql(app: FastAPI, sources: Sources) -> None:
    """Add the page of queries, and the files of results."""

    @app.get("/sql")
    def sql(query: str = "", operator: str | None = None, batch: BatchNumber = None) -> Response:
        return sql_page(sources, Asked(query, operator, batch))

    @app.get("/sql/rows.{form}")
    def file(form: str, query: str, operator: str | None = None, batch: BatchNumber = None) -> Response:
        return file_of(sources, form, Asked(query, operator, batch))


def sql_page(sources: Sources, asked: Asked) -> Response:
    """Return the page with the query and its result, or with what is wrong with it."""
    logs = _logs(sources, asked)
    views = views_of(logs, sources.application.operators)
    shown: dict[str, Any] = {
        "asked": asked,
        "longest": LONGEST_QUERY,
        "columns": columns_of(views),
        "functions": [name for each in views for name in each.functions],
        "files": [(form, f"/sql/rows.{form}?{asked.address}") for form in FILES],
        "rows": None,
        "error": None,
        "missing": [name for name in sources.application.operators if name not in logs],
        "as_of_links": [(name, f"/sql?{asked._replace(operator=name, batch=None).address}") for name in logs],
        "batches": range(0) if asked.operator is None else sources.logs.of(asked.operator).readable(),
    }
    if not asked.query.strip():
        return page("sql.html", **shown)
    try:
        found = run(asked.query, views, PAGE_ROWS + 1)
    except UserError as error:
        return page("sql.html", 400, **shown | {"error": error})
    rows = found.slice(0, PAGE_ROWS)
    more = len(found) > PAGE_ROWS
    return page("sql.html", **shown | {"rows": cells_of(rows), "chart": chart_of(rows), "more": more})


def _logs(sources: Sources, asked: Asked) -> dict[str, LogVersion]:
    """Return the logs as of then. Raise UserError if the operator's own does not reach back to the batch."""
    if asked.operator is not None:
        sources.config(asked.operator)
    return sources.logs.as_of(asked.operator, asked.batch)


def file_of(sources: Sources, form: str, asked: Asked) -> Response:
    """Return the query's result as a file of the form. Raise UserError as `run` does, and if it has too many rows."""
    if form not in FILES:
        raise UserError("there is no such file", value=form[:100], remedy=f"files: {', '.join(FILES)}")
    views = views_of(_logs(sources, asked), sources.application.operators)
    found = run(asked.query, views, FILE_ROWS + 1)
    if len(found) > FILE_ROWS:
        remedy = "narrow it down with WHERE, or use `tidegate sql --json`"
        raise UserError("the result has too many rows for a file", value=f"more than {FILE_ROWS:,}", remedy=remedy)
    media_type, content_of = FILES[form]
    headers = {"content-disposition": f'attachment; filename="rows.{form}"'}
    return Response(content_of(found), media_type=media_type, headers=headers)
