"""Pages made of templates, and the page that shows an error."""

from __future__ import annotations

from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from tidegate.console import texts
from tidegate.contracts.errors import TidegateError
from tidegate.runtime.configuration.written import written

_TEMPLATES = Environment(
    loader=PackageLoader("tidegate.console"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_TEMPLATES.filters |= {"time": texts.time_text, "age": texts.age_text, "number": texts.number_text}
_TEMPLATES.filters |= {"visible": texts.visible, "is_time": texts.is_time, "written": written}


def page(template: str, status: int = 200, **content: Any) -> HTMLResponse:
    """Return the page that the template makes of the content."""
    return HTMLResponse(_TEMPLATES.get_template(template).render(**content), status)


def error_page(status: int, error: TidegateError) -> HTMLResponse:
    """Return the page that shows an error."""
    value = "" if error.value is None else texts.visible(str(error.value))
    return page("problem.html", status, problem=error.problem, value=value, remedy=error.remedy)
