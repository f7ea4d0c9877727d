"""Which calls register a definition, which replace one, and which are refused."""

from __future__ import annotations

import logging
from dataclasses import FrozenInstanceError
from datetime import timedelta

import pytest

import tidegate as tg
from tests.application.programs import application
from tidegate.contracts.errors import UserError

pytestmark = pytest.mark.fast


def limited(app: tg.Application, limit: str | timedelta, name: str = "updates") -> tg.Output:
    return app.stream("departures", name=name).suppress(tg.time_limit(limit))


def test_nothing_is_registered_before_to_or_keep() -> None:
    app = application()
    output = limited(app, "30s")
    assert "no operators" in repr(app)
    output.to("updates")
    assert list(app.configuration().operators) == ["updates"]


def test_defining_the_same_again_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    app = application()
    for _ in range(2):
        limited(app, "30s").to("updates")
    assert app.configuration().operators["updates"].output == "updates"
    assert caplog.records == []


def test_changed_content_under_the_same_name_replaces_the_definition_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = application()
    limited(app, "30s").to("updates")
    with caplog.at_level(logging.WARNING, "tidegate"):
        limited(app, "1m").keep()
    assert app == application_of_one_minute()
    [line] = caplog.messages
    assert "updates" in line and "replaces" in line and "test_definitions.py" in line


def test_a_cell_that_is_corrected_and_runs_again_has_no_problem_left() -> None:
    app = application()
    stream = app.stream("departures", name="updates")
    stream.suppress(tg.time_limit("30s"), tg.time_limit("1m")).keep()
    with pytest.raises(UserError, match="1 problem"):
        app.check()
    stream.suppress(tg.time_limit("30s")).keep()
    app.check()


def test_a_cell_that_runs_again_gives_its_new_lines_to_problems() -> None:
    app = application()
    cell = "app.stream('departures', name='updates', max_ahead='soon').suppress(tg.time_limit('1s')).keep()"
    for above in (0, 3):
        exec(compile("\n" * above + cell, "<ipython-input>", "exec"), {"app": app, "tg": tg})
        with pytest.raises(UserError, match=rf"<cell>:{above + 1} \.stream"):
            app.check()


def application_of_one_minute() -> tg.Application:
    app = application()
    limited(app, timedelta(minutes=1)).keep()
    return app


def test_redefining_a_stream_removes_its_operator_until_it_is_defined_again() -> None:
    app = application()
    limited(app, "30s").to("updates")
    app.stream("arrivals", name="updates")
    with pytest.raises(UserError, match="1 problem"):
        app.check()


def test_values_are_frozen_and_equal_if_they_define_the_same() -> None:
    app = application()
    stream = app.stream("departures", name="updates")
    assert stream == app.stream("departures", name="updates")
    assert stream.suppress(tg.time_limit("30s")) != stream.suppress(tg.time_limit("1m"))
    with pytest.raises(FrozenInstanceError):
        stream.definition = stream.definition  # type: ignore[misc]


def test_applications_with_the_same_content_are_equal() -> None:
    assert application(keep_output="48h") == application(keep_output=timedelta(days=2)) == application(keep_output="2d")
    assert application(keep_output="48h") != application(keep_output="forever")


def test_a_function_of_a_program_is_allowed_and_named() -> None:
    from tidegate.operators.testing.joiners import dashed

    app = application()
    prices = app.table("prices", history="30d")
    app.stream("orders", name="priced").join(prices, how="left", joiner=dashed).keep()
    assert app.configuration().allow == ("tidegate.operators.testing.joiners",)
    assert app.configuration().operators["priced"].functions() == ("tidegate.operators.testing.joiners:dashed",)


def test_relative_folders_start_at_the_folder_of_the_program() -> None:
    from pathlib import Path

    assert application().configuration().lake == Path(__file__).parent / "lake"


def test_environment_variables_apply_as_they_do_to_files(monkeypatch: pytest.MonkeyPatch) -> None:
    app = application()
    text = app.to_yaml()
    monkeypatch.setenv("TIDEGATE_KAFKA__BOOTSTRAP_SERVERS", "broker:9092")
    assert app.configuration().kafka["bootstrap.servers"] == "broker:9092"
    assert app.to_yaml() == text
