"""The page on which queries are written, with their results, and the files of these."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI
from fastapi.responses import Response

from tidegate.console.pages.rendering import page
from tidegate.console.sql.results import FILES, cells_of, chart_of
from tidegate.console.sql.running import run
from tidegate.console.sql.views import columns_of, views_of
from tidegate.contracts.errors import UserError
from tidegate.runtime.configuration.application import Application

PAGE_ROWS, FILE_ROWS = 500, 100_000
"""Most rows that the page shows, and that a file has."""

LONGEST_QUERY = 3_000
"""Most characters of a query: addresses have them."""


def add_sql(app: FastAPI, application: Application) -> None:
    """Add the page of queries, and the files of results."""

    @app.get("/sql")
    def sql(query: str = "") -> Response:
        return sql_page(application, query)

    @app.get("/sql/rows.{form}")
    def file(form: str, query: str) -> Response:
        return file_of(application, form, query)


def sql_page(application: Application, query: str) -> Response:
    """Return the page with the query and its result, or with what is wrong with it."""
    views = views_of(application.lake, application.operators)
    shown: dict[str, Any] = {
        "query": query,
        "longest": LONGEST_QUERY,
        "columns": columns_of(views),
        "functions": [name for each in views for name in each.functions],
        "files": [(form, f"/sql/rows.{form}?{urlencode({'query': query})}") for form in FILES],
        "rows": None,
        "error": None,
    }
    if not query.strip():
        return page("sql.html", **shown)
    try:
        found = run(query, views, PAGE_ROWS + 1)
    except UserError as error:
        return page("sql.html", 400, **shown | {"error": error})
    rows = found.slice(0, PAGE_ROWS)
    more = len(found) > PAGE_ROWS
    return page("sql.html", **shown | {"rows": cells_of(rows), "chart": chart_of(rows), "more": more})


def file_of(application: Application, form: str, query: str) -> Response:
    """Return the query's result as a file of the form. Raise UserError as `run` does, and if it has too many rows."""
    if form not in FILES:
        raise UserError("there is no such file", value=form[:100], remedy=f"files: {', '.join(FILES)}")
    found = run(query, views_of(application.lake, application.operators), FILE_ROWS + 1)
    if len(found) > FILE_ROWS:
        remedy = "narrow it down with WHERE, or use `tidegate sql --json`"
        raise UserError("the result has too many rows for a file", value=f"more than {FILE_ROWS:,}", remedy=remedy)
    media_type, content_of = FILES[form]
    headers = {"content-disposition": f'attachment; filename="rows.{form}"'}
    return Response(content_of(found), media_type=media_type, headers=headers)
