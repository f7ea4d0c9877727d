"""Which calls register a definition, which replace one, and which are refused."""

from __future__ import annotations

import logging
import sys
from dataclasses import FrozenInstanceError
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import pytest

import tidegate as tg
from tests.application.programs import application
from tidegate.application.running import depth
from tidegate.contracts.errors import ConfigurationError, UserError

pytestmark = pytest.mark.fast


def limited(app: tg.Application, limit: str | timedelta, name: str = "updates") -> tg.Stream:
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


def run_cell(app: tg.Application, *statements: str, **names: object) -> dict[str, Any]:
    """Run the statements at a prompt, where each is a run of its own, or in one cell of a notebook."""
    defined: dict[str, Any] = {"app": app, "tg": tg, **names}
    for statement in statements:
        exec(compile(statement, "<input>", "exec"), defined)
    return defined


class Notebook:
    """The part of IPython that tells the runs of cells apart."""

    def __init__(self) -> None:
        self.execution_count = 0

    def get_ipython(self) -> Notebook:
        return self

    def run(self, app: tg.Application, *statements: str, **names: object) -> dict[str, Any]:
        """Run the statements as the next run of a cell; each is compiled by itself, as IPython does."""
        self.execution_count += 1
        return run_cell(app, *statements, **names)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """A notebook in whose cells the program runs."""
    opened = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", opened)  # type: ignore[arg-type]
    return opened


OUTPUT = "app.stream('departures', name='updates').suppress(tg.time_limit('{}')).{}"


@pytest.mark.parametrize("in_notebook", [True, False])
def test_a_cell_with_changed_content_replaces_the_definition_and_that_is_logged(
    in_notebook: bool, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    run = request.getfixturevalue("notebook").run if in_notebook else run_cell
    app = application()
    run(app, OUTPUT.format("30s", "to('updates')"))
    with caplog.at_level(logging.WARNING, "tidegate"):
        run(app, OUTPUT.format("1m", "keep()"))
    assert app == application_of_one_minute()
    [line] = caplog.messages
    assert "updates" in line and "replaces" in line and "<cell>:1" in line


def test_cells_whose_stream_is_defined_in_another_cell_replace_each_other(notebook: Notebook) -> None:
    app = application()
    stream = notebook.run(app, "stream = app.stream('departures', name='updates')")["stream"]
    for limit in ("30s", "1m"):
        notebook.run(app, f"stream.suppress(tg.time_limit('{limit}')).keep()", stream=stream)
    assert app == application_of_one_minute()
    notebook.run(app, "stream = app.stream('departures', name='updates')")
    assert app == application_of_one_minute()


def test_a_cell_that_is_corrected_and_runs_again_has_no_problem_left(notebook: Notebook) -> None:
    app = application()
    stream = notebook.run(app, "stream = app.stream('departures', name='updates')")["stream"]
    first, second = (f"stream.suppress(tg.time_limit('{limit}')).keep()" for limit in ("30s", "1m"))
    for faulty in (["stream.suppress(tg.time_limit('30s'), tg.time_limit('1m')).keep()"], [first, second]):
        notebook.run(app, *faulty, stream=stream)
        with pytest.raises(UserError, match="1 problem"):
            app.check()
    notebook.run(app, second, stream=stream)
    app.check()
    assert app == application_of_one_minute()


def test_a_second_operator_of_the_same_name_is_a_problem_in_a_cell(notebook: Notebook) -> None:
    app = application()
    for _ in range(2):
        notebook.run(app, OUTPUT.format("30s", "keep()"), OUTPUT.format("1m", "keep()"))
        with pytest.raises(UserError, match="1 problem"):
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
    run_cell(app, OUTPUT.format("30s", "to('updates')"))
    run_cell(app, "app.stream('arrivals', name='updates')")
    with pytest.raises(UserError, match="the stream has no output"):
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


def test_environment_variables_may_be_all_that_defines_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "TIDEGATE_OPERATORS", "{updates: {kind: suppression, input: departures, until: {time_limit: 1s}}}"
    )
    text = "{application: flights, lake: lake, keep_output: 30d, kafka: {bootstrap.servers: 'x:1'}}"
    assert list(tg.Application.from_yaml(text).configuration().operators) == ["updates"]


def test_one_module_may_be_allowed_by_its_name_alone() -> None:
    assert application(allow="gates").configuration().allow == ("gates",)


def test_settings_may_be_any_mapping() -> None:
    app = application(kafka=MappingProxyType({"bootstrap.servers": "x:1"}))
    assert app.configuration().kafka == {"bootstrap.servers": "x:1"}


def test_names_may_be_members_of_an_enumeration() -> None:
    class Topic(StrEnum):
        DEPARTURES = "departures"

    app, same = application(), application()
    app.stream(Topic.DEPARTURES, name="updates").suppress(tg.time_limit("30s")).keep()
    same.stream("departures", name="updates").suppress(tg.time_limit("30s")).keep()
    assert app.to_yaml() == same.to_yaml()


def test_only_operators_that_hold_windows_and_have_run_have_windows_to_read() -> None:
    app = application(lake="no-such-lake")
    limited(app, "30s").keep()
    app.stream("visits", name="visits").window(tg.tumbling("1h", grace=0)).count().keep()
    for name, problem in (("vsits", "no such operator"), ("", "no such operator"), ("updates", "it holds no windows")):
        with pytest.raises(UserError, match=problem) as caught:
            app.windows(name)
        assert caught.value.value == name
    with pytest.raises(UserError, match="has no log yet"):
        app.windows("visits")


SECRET = "not to be shown"


def test_no_text_of_an_application_shows_a_secret() -> None:
    kafka = {"bootstrap.servers": "x:1", "sasl.jaas.config": SECRET}
    control = f"postgresql+psycopg://user:{quote(SECRET)}@host/control"
    app = application(kafka=kafka, control=control, spark_conf={"spark.hadoop.fs.s3a.secret.key": SECRET})
    stream = app.stream("departures", name="updates")
    stream.suppress(tg.time_limit("30s")).keep()
    shown = [repr(app), app._repr_html_(), repr(stream), repr(app.configuration()), str(app.configuration())]
    assert not [text for text in shown if SECRET in text or quote(SECRET) in text]


def test_a_notebook_shows_every_topic_of_a_pipeline() -> None:
    app = application()
    newest = app.stream("departures", name="updates").suppress(tg.time_limit("30s"), name="newest")
    newest.to("all-updates")
    newest.filter("key is not null").to("named-updates")
    assert "all-updates, named-updates" in app._repr_html_()


def test_an_operator_that_reads_a_topic_of_an_inner_step_stands_behind_the_pipeline() -> None:
    """So a handle waits for the pipeline first."""
    app = application()
    newest = app.stream("departures", name="updates").suppress(tg.time_limit("30s"), name="newest")
    newest.to("all-updates")
    newest.filter("key is not null").to("named-updates")
    app.stream("all-updates", name="once").deduplicate(within="forever").keep()
    configuration = app.configuration()
    assert [depth(name, configuration) for name in ("updates", "once")] == [0, 1]


def test_relative_folders_start_at_the_folder_of_the_program() -> None:
    from pathlib import Path

    assert application().configuration().lake.folder == Path(__file__).parent / "lake"


def test_environment_variables_apply_as_they_do_to_files(monkeypatch: pytest.MonkeyPatch) -> None:
    app = application()
    text = app.to_yaml()
    monkeypatch.setenv("TIDEGATE_KAFKA__BOOTSTRAP_SERVERS", "broker:9092")
    assert app.configuration().kafka["bootstrap.servers"] == "broker:9092"
    assert app.to_yaml() == text


def test_results_are_written_in_the_format_of_one_of_kafka_s_serializers() -> None:
    app = application()
    visits = app.stream("visits", name="visits", key=tg.uuid(), value=tg.float64())
    visits.window(tg.tumbling("1h", grace="5m")).count().to("counts", value=tg.int64())
    written = app.to_yaml()
    assert "encode: int64" in written
    assert "key: uuid" in written
    assert "value: float64" in written
    assert tg.Application.from_yaml(written) == app


def test_a_key_in_avro_is_that_of_the_file(tmp_path: Path) -> None:
    app = application()
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    key = tg.avro(schema=schema, schemas=tmp_path)
    departures = app.stream("departures", name="updates", key=key).filter("key.n > 3")
    departures.suppress(tg.time_limit("1s")).to("updates")
    app.check()
    assert "key:\n" in app.to_yaml()
    assert tg.Application.from_yaml(app.to_yaml()) == app


def test_a_format_that_results_have_already_is_refused() -> None:
    app = application()
    updates = app.stream("departures", name="updates").suppress(tg.time_limit("1s"))
    updates.to("updates", value=tg.json())
    with pytest.raises(ConfigurationError, match="values are JSON already"):
        app.check()


def test_topics_in_a_list_are_one_stream_and_a_list_in_the_file() -> None:
    app = application()
    app.stream(("orders-eu", "orders-us"), name="updates").suppress(tg.time_limit("30s")).keep()
    assert app.configuration().operators["updates"].inputs == ("orders-eu", "orders-us")
    assert "  input:\n    - orders-eu\n    - orders-us\n" in app.to_yaml()
    assert "<td>orders-eu, orders-us</td>" in app._repr_html_()
    assert "<td>orders-eu, orders-us</td>" in tg.Application.from_yaml(app.to_yaml())._repr_html_()


def test_a_list_of_one_topic_is_that_topic() -> None:
    apps = [application(), application()]
    for app, topic in zip(apps, ("departures", ["departures"]), strict=True):
        app.stream(topic, name="updates").suppress(tg.time_limit("30s")).keep()
    assert apps[0] == apps[1] and apps[0].to_yaml() == apps[1].to_yaml()


@pytest.mark.parametrize(
    ("topics", "cause"),
    [
        ([], "no topic is named"),
        (["a", "a"], "topic a is named twice"),
        (["a", "a b"], "not a valid topic name"),
        ([5, "a"], "a value of type int is not allowed here"),
    ],
)
def test_topics_that_cannot_be_merged_are_a_problem_of_the_line_that_names_them(topics: Any, cause: str) -> None:
    app = application()
    app.stream(topics, name="updates").filter("key is null").suppress(tg.time_limit("30s"), name="held").to("results")
    with pytest.raises(ConfigurationError) as caught:
        app.check()
    [problem] = caught.value.problems
    assert problem.cause == cause and ".stream() of updates" in problem.where


def test_a_table_of_several_topics_has_a_name_of_its_own() -> None:
    app = application()
    app.table(["prices-eu", "prices-us"], name="prices", history="1d")
    assert app.configuration().operators["prices"].inputs == ("prices-eu", "prices-us")
    app.table(["facts", "more"], history="1d")
    with pytest.raises(ConfigurationError, match="a table of several topics has the name of none of them"):
        app.check()
