"""The page of one key: its time line."""

from __future__ import annotations

from fastapi.responses import Response

from tidegate.console.key_history import KeyQuery, events_of, time_line, waiting
from tidegate.console.pages.rendering import page
from tidegate.console.pages.sources import Sources
from tidegate.console.tables import cell_of
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.operators.registry import kind_of


def key_page(sources: Sources, name: str, rules: OperatorRules, query: KeyQuery) -> Response:
    """Return the page of the key. `rules`: those of the operator, or of its step."""
    config, known = sources.config(name), sources.logs.of(name)
    if config.operators and query.step is None:
        raise UserError("a pipeline holds keys by step", value=name, remedy=f"add &step={next(iter(config.operators))}")
    log = known.after(query.batch)
    newest = log.newest()
    assert newest is not None, "a log that is read begins with a claim"
    events = events_of(log, rules, query)
    return page(
        "key.html",
        name=name,
        key=cell_of("key", query.key, config, rules),
        query=query,
        newest=newest,
        batches=known.readable(),
        events=events[::-1],
        stream_times={each: newest.partitions[each].stream_time for each in sorted(waiting(events))},
        causes=kind_of(rules.kind).causes,
        line=time_line(events, newest.batch),
    )
