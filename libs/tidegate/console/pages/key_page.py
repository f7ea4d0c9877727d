"""The page of one key: its time line."""

from __future__ import annotations

from fastapi.responses import Response

from tidegate.console.key_history import KeyQuery, events_of, time_line
from tidegate.console.pages.rendering import page
from tidegate.console.tables import cell_of
from tidegate.contracts.config import OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.runtime.configuration.application import Application
from tidegate.state.earlier_batches import log_after, readable_batches
from tidegate.state.lake.opening import open_lake


def key_page(application: Application, name: str, rules: OperatorRules, query: KeyQuery) -> Response:
    """Return the page of the key. `rules`: those of the operator, or of its step."""
    config, lake = application.operators[name], open_lake(application.lake / name)
    if config.operators and query.step is None:
        raise UserError("a pipeline holds keys by step", value=name, remedy=f"add &step={next(iter(config.operators))}")
    log = log_after(lake, query.batch)
    newest = log.newest()
    assert newest is not None, "a log that is read begins with a claim"
    events = events_of(log, rules, query)
    return page(
        "key.html",
        name=name,
        key=cell_of("key", query.key, config, rules),
        query=query,
        newest=newest,
        batches=readable_batches(lake),
        events=events[::-1],
        line=time_line(events, newest.batch),
    )
