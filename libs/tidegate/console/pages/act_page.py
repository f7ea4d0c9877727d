"""The pages of actions: what each one does, its confirmation, the preview of edited options, and what has run."""

from __future__ import annotations

from hmac import compare_digest
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from tidegate.console.access import Logins
from tidegate.console.act.actions import ACTIONS, action_of, arguments_of, as_typed
from tidegate.console.act.edited import options_text, picture_of, preview_of
from tidegate.console.act.jobs import Jobs
from tidegate.console.pages.login import form_of
from tidegate.console.pages.rendering import page
from tidegate.console.pages.sources import Sources
from tidegate.console.rows import refuse_too_much
from tidegate.contracts.errors import UserError
from tidegate.runtime.doctor.change_preview import ChangePreview

LONGEST_OPTIONS = 3_000
"""Most characters of edited options: addresses have them."""


def add_actions(app: FastAPI, sources: Sources, logins: Logins, file: str) -> None:
    """Add the pages of actions. `file`: the name of the configuration on the command line."""
    jobs = Jobs()

    @app.get("/operators/{name}/plan")
    def plan(name: str, options: str = "") -> Response:
        return plan_page(sources, name, options)

    @app.get("/operators/{name}/act")
    def actions(name: str) -> Response:
        sources.config(name)
        return page("act.html", name=name, actions=ACTIONS, jobs=jobs.newest_first)

    @app.get("/operators/{name}/act/{what}")
    def confirmation(request: Request, name: str, what: str) -> Response:
        sources.config(name)
        return _confirmation(logins, request, what, file, name)

    @app.post("/operators/{name}/act/{what}")
    async def confirmed(request: Request, name: str, what: str) -> Response:
        form = await form_of(request)
        sources.config(name)
        if not compare_digest(form.get("form_token", ""), _form_token(logins, request)):
            raise HTTPException(403)
        arguments = arguments_of(what, file, name, form, is_preview="preview" in form)
        job = await run_in_threadpool(jobs.start, arguments)
        return RedirectResponse(f"/actions/{job.number}", 303)

    @app.get("/actions/{number}")
    def action(number: int) -> Response:
        return page("action.html", job=jobs.find(number))


def _form_token(logins: Logins, request: Request) -> str:
    return logins.form_token(request.cookies[logins.cookie])


def _confirmation(logins: Logins, request: Request, what: str, file: str, name: str) -> Response:
    """Return the page that says what would run, with the form that runs it; with what is wrong if it cannot."""
    action, form = action_of(what), dict(request.query_params)
    shown: dict[str, Any] = {
        "name": name,
        "what": what,
        "action": action,
        "fields": {each: form.get(each, "") for each in action.fields},
    }
    try:
        arguments = arguments_of(what, file, name, form)
    except UserError as error:
        return page("confirm.html", 400, **shown, error=error)
    token = _form_token(logins, request)
    return page("confirm.html", **shown, error=None, command=as_typed(arguments), form_token=token)


def plan_page(sources: Sources, name: str, options: str) -> Response:
    """Return the page with the operator's options, and what they would do if they were edited."""
    config = sources.config(name)
    text = options or options_text(config)
    preview, error = None, None
    if options:
        try:
            preview = _preview(sources, name, text)
        except UserError as found:
            error = found
    parts = None if preview is None or preview.status != "live" else picture_of(preview.forecast)
    shown: dict[str, Any] = {
        "name": name,
        "options": text,
        "longest": LONGEST_OPTIONS,
        "preview": preview,
        "parts": parts,
    }
    return page("plan.html", 200 if error is None else 400, **shown, error=error)


def _preview(sources: Sources, name: str, text: str) -> ChangePreview:
    if (log := sources.logs.newest(name)) is not None:
        refuse_too_much(log.data_files("state"))
    return preview_of(sources.application, name, text)
