"""All problems of a program are reported at once, each with the file and line of the call that caused it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.application.programs import application
from tidegate.contracts.errors import ConfigurationError, UserError
from tidegate.operators.testing.batch_functions import measured

pytestmark = pytest.mark.fast


def problems(app: tg.Application) -> list[tuple[str, str]]:
    """The place and the cause of each problem."""
    with pytest.raises(ConfigurationError) as caught:
        app.check()
    return [(problem.where, problem.cause) for problem in caught.value.problems]


def causes(app: tg.Application) -> list[str]:
    """The cause of each problem."""
    return [cause for _, cause in problems(app)]


def lines(function: Callable[..., Any], text: str) -> int:
    """The line of this file at which the function has the text."""
    source, first = inspect.getsourcelines(function)
    [line] = [first + at for at, line in enumerate(source) if text in line and "lines(" not in line]
    return line


def test_each_problem_has_the_line_of_its_call() -> None:
    app = application()
    (
        app.stream("departures", name="updates", max_ahead="soon")
        .suppress(tg.time_limit("thirty"), bytes_of="value")
        .to("departures")
    )
    here = test_each_problem_has_the_line_of_its_call
    assert {place for place, _ in problems(app)} == {
        f"test_problems.py:{lines(here, 'max_ahead')} .stream() of updates, max_ahead",
        f"test_problems.py:{lines(here, '.suppress(tg')} .suppress() of updates, until.time_limit",
        f"test_problems.py:{lines(here, '.to(')} .to() of updates, output",
    }


def test_problems_of_settings_name_the_line_of_the_application() -> None:
    app = tg.Application("My flights", kafka={}, lake="hdfs://namenode/lake", keep_output="long")
    place = f"test_problems.py:{lines(test_problems_of_settings_name_the_line_of_the_application, 'My flights')}"
    wanted = {f"{place} Application(), {name}" for name in ("application", "kafka", "lake", "keep_output")}
    assert wanted <= {where for where, _ in problems(app)}


def test_a_stream_without_output_is_a_problem() -> None:
    app = application()
    app.stream("departures", name="updates")
    [cause] = causes(app)
    assert cause == "the stream has no output"


def test_records_that_no_step_makes_are_not_kept_beside_the_results_of_steps() -> None:
    app = application()
    stream = app.stream("departures", name="updates")
    stream.keep()
    app.check()
    stream.filter("true").to("chosen")
    [cause] = causes(app)
    assert cause == "there is no step whose results are kept"


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        ([tg.time_limit("1s"), tg.time_limit("2s")], "there is another limit already"),
        ([tg.max_keys(1, when_full="emit"), tg.max_keys(2, when_full="emit")], "there is another max_keys already"),
        (
            [tg.max_keys(1, when_full="emit"), tg.max_bytes(2, when_full="emit"), tg.max_bytes(2, when_full="spill")],
            "there is another max_bytes already",
        ),
        (
            [tg.max_keys(1, when_full="emit"), tg.max_bytes(2, when_full="shut_down")],
            "the bounds of one buffer differ in when_full",
        ),
        (["30s"], "not a limit"),
    ],
)
def test_limits_that_contradict_each_other_are_a_problem(limits: list[Any], cause: str) -> None:
    app = application()
    app.stream("departures", name="updates").suppress(*limits).keep()
    assert cause in causes(app)


def test_a_function_that_workers_cannot_import_is_a_problem() -> None:
    app = application()
    app.stream("gates", name="worst").window(tg.unlimited()).aggregate(lambda windows: windows).keep()
    [cause] = causes(app)
    assert cause == "Spark's Python workers cannot import it"


def test_an_aggregate_that_is_not_called_is_a_problem() -> None:
    app = application()
    app.stream("gates", name="sizes").window(tg.unlimited()).aggregate(tg.count).keep()
    with pytest.raises(ConfigurationError, match=r"tg\.count\(\)"):
        app.check()


def test_a_refused_name_with_dots_has_the_line_of_its_own_call() -> None:
    app = application()
    app.table("weather.readings", history="30d")
    app.stream("departures", name="weather").suppress(tg.time_limit("30s")).keep()
    here = test_a_refused_name_with_dots_has_the_line_of_its_own_call
    [(place, _)] = problems(app)
    assert place == f"test_problems.py:{lines(here, 'app.table')} .table() of weather.readings"


@pytest.mark.parametrize("setting", ["kafka", "lake", "keep_output"])
def test_a_setting_that_is_none_is_a_problem(setting: str) -> None:
    [(place, cause)] = problems(application(**{setting: None}))
    assert place.endswith(setting) and cause == "required, but missing"


def test_a_grace_that_is_given_twice_and_results_on_time_that_are_final_are_problems() -> None:
    app = application()
    windows = app.stream("gates", name="hourly").window(tg.tumbling("1h", grace="5m"))
    windows.count(emit="on_time").suppress(tg.window_close(grace="6m")).keep()
    assert causes(app) == [
        "the windows have a grace already",
        "a final result leaves once, when its window closes",
    ]


def test_the_table_of_a_different_application_is_a_problem() -> None:
    app, other = application(), application()
    app.stream("orders", name="priced").join(other.table("prices", history="30d"), how="left").keep()
    [cause] = causes(app)
    assert cause == "not a table of this file"


def test_a_missing_option_has_the_line_of_the_call_that_lacks_it_and_a_name_that_of_the_stream() -> None:
    app = application()
    (
        app.stream("departures", name="all updates")
        .suppress()
        .keep()
    )  # fmt: skip
    firsts = app.stream("departures", name="firsts")
    firsts.deduplicate(within="1h").to("firsts")  # type: ignore[call-overload]
    here = test_a_missing_option_has_the_line_of_the_call_that_lacks_it_and_a_name_that_of_the_stream
    assert {place for place, _ in problems(app)} == {
        f"test_problems.py:{lines(here, 'all updates')} .stream() of all updates",
        f"test_problems.py:{lines(here, '.deduplicate(')} .deduplicate() of firsts, grace",
    }


@pytest.mark.parametrize(
    ("value", "method", "remedy"),
    [
        ("stream", "count", r"\.window"),
        ("stream", "where", r"\.filter"),
        ("stream", "fitler", r"\.filter"),
        ("stream", "groupByKey", "select_key"),
        ("windowed", "keep", r"\.count\(\)"),
        ("windowed", "sum", r"\.aggregate\(tg\.sum\(FIELD\)\)"),
        ("table", "join", r"\.join\(table"),
    ],
)
def test_a_method_that_a_value_lacks_names_what_to_write(value: str, method: str, remedy: str) -> None:
    app = application()
    stream = app.stream("departures", name="updates")
    values = {"stream": stream, "windowed": stream.window(tg.unlimited()), "table": app.table("gates", history="1d")}
    with pytest.raises(AttributeError, match=f"has no attribute '{method}'; .*{remedy}"):
        getattr(values[value], method)
    assert not hasattr(values[value], "_ipython_display_")


def test_a_method_of_plain_streams_that_windows_lack_names_the_alternative() -> None:
    output: Any = application().windowed_stream("counts", name="final").suppress(tg.window_close(grace=0))
    with pytest.raises(AttributeError, match=r"'window'; its keys have windows already"):
        _ = output.window
    with pytest.raises(AttributeError, match=r"no attribute 'supress'; write .suppress$"):
        _ = output.supress


def test_each_problem_of_a_chain_has_the_line_of_its_step() -> None:
    app, one = application(), "1s"
    (
        app.stream("events", name="quiet_users")
        .window(tg.tumbling("1h", grace="soon"))
        .count(name="per_hour", every=0)
        .filter("cuont < 3")
        .suppress(tg.time_limit("later"))
        .require("true", "")
        .filter(lambda row: row)  # type: ignore[arg-type]
        .suppress(tg.time_limit(one))
        .to("quiet users")
    )
    here = test_each_problem_of_a_chain_has_the_line_of_its_step
    assert {place for place, _ in problems(app)} == {
        f"test_problems.py:{lines(here, '.window(')} .window() of quiet_users, window.grace",
        f"test_problems.py:{lines(here, '.count(')} .count() of quiet_users, every",
        f"test_problems.py:{lines(here, 'later')} .suppress() of quiet_users, until.time_limit",
        f"test_problems.py:{lines(here, '.filter(lambda')} .filter() of quiet_users, filter",
        f"test_problems.py:{lines(here, '.require(')} .require() of quiet_users, reason",
        f"test_problems.py:{lines(here, 'time_limit(one)')} .suppress() of quiet_users",
        f"test_problems.py:{lines(here, '.to(')} .to() of quiet_users, output",
    }


def test_a_misspelt_column_names_the_line_and_the_columns_that_there_are() -> None:
    app = application()
    app.stream("events", name="quiet").window(tg.tumbling("1h", grace=0)).count().filter("cuont < 3").keep()
    with pytest.raises(ConfigurationError) as caught:
        app.check()
    [problem] = caught.value.problems
    line = lines(test_a_misspelt_column_names_the_line_and_the_columns_that_there_are, "app.stream")
    assert problem.where == f"test_problems.py:{line} .filter() of quiet"
    assert problem.cause == "no column cuont (cuont < 3)"
    assert problem.remedy == "there are: timestamp, window_start, window_end, key, count"


def test_a_typo_a_name_given_twice_and_a_lambda_each_name_line_value_and_remedy() -> None:
    app = application()
    (
        app.stream("departures", name="updates", value=tg.json({"delay": "int64"}))
        .filter("dealy > 15")
        .window(tg.tumbling("1h", grace=0))
        .aggregate(lambda values: values, name="hours")
        .suppress(tg.time_limit("1s"), name="hours")
        .keep()
    )
    here = test_a_typo_a_name_given_twice_and_a_lambda_each_name_line_value_and_remedy
    with pytest.raises(ConfigurationError) as caught:
        app.to_yaml()
    found = {problem.where: problem for problem in caught.value.problems}
    typo = found[f"test_problems.py:{lines(here, '.filter(')} .filter() of updates"]
    twice = found[f"test_problems.py:{lines(here, '.suppress(')} .suppress() of updates"]
    unnamed = found[f"test_problems.py:{lines(here, '.aggregate(')} .aggregate() of updates, aggregate"]
    assert len(found) == 3
    assert (typo.cause, typo.remedy) == ("no column dealy (dealy > 15)", "there are: timestamp, key, delay")
    assert (twice.cause, twice.remedy) == ("another step is named hours", "give each step a name of its own")
    assert "<lambda>" in str(unnamed) and "define it with `def`" in unnamed.remedy
    assert "'dealy > 15'" in str(typo) and "'hours'" in str(twice)


def test_text_that_is_not_an_application_is_refused() -> None:
    with pytest.raises(UserError, match="has no configuration") as caught:
        tg.Application.from_yaml("flights.yaml")
    assert "pathlib.Path" in caught.value.remedy
    with pytest.raises(ConfigurationError):
        tg.Application.from_yaml("application: flights\noperators: 5")


def test_two_operators_of_one_name_are_a_problem_with_the_line_of_both() -> None:
    app = application()
    app.stream("departures", name="updates").suppress(tg.time_limit("30s")).to("first")
    app.stream("arrivals", name="updates").suppress(tg.time_limit("30s")).to("second")
    app.table("updates", history="1d")
    here = test_two_operators_of_one_name_are_a_problem_with_the_line_of_both
    first, second, table = (lines(here, call) for call in ('"departures"', '"arrivals"', "app.table"))
    cause = f"test_problems.py:{first} .to() has defined another operator of that name"
    assert problems(app) == [
        (f"test_problems.py:{second} .to() of updates", cause),
        (f"test_problems.py:{table} .table() of updates", cause),
    ]


def test_one_topic_for_two_outputs_is_a_problem() -> None:
    app = application()
    output = app.stream("departures", name="updates").suppress(tg.time_limit("30s"))
    output.to("first")
    output.to("second")
    output.to("first")
    assert [each.topic for each in app.configuration().operators["updates"].outputs()] == ["first", "second"]
    output.filter("key is null").to("first")
    assert causes(app) == ["the topic is written by the last step"]


def test_only_branches_of_one_stream_can_be_merged_and_a_step_reads_them() -> None:
    app = application()
    output, another = (
        app.stream("departures", name=name).suppress(tg.time_limit("30s")) for name in ("updates", "others")
    )
    another.to("others")
    output.merge(another).to("both")
    assert causes(app) == ["it does not grow from the same stream"]
    app = application()
    output = app.stream("departures", name="updates").suppress(tg.time_limit("30s"))
    output.merge(output.filter("key is null")).keep()
    assert causes(app) == ["no step reads the merged rows"]


def test_operators_of_one_name_in_a_loop_are_a_problem() -> None:
    app = application()
    for topic in ("departures", "arrivals"):
        app.stream(topic, name="updates").suppress(tg.time_limit("30s")).keep()
    assert len(problems(app)) == 1


@pytest.mark.parametrize("option", ["max_ahead", "idle_after", "rewind_window"])
def test_a_boolean_is_no_duration(option: str) -> None:
    app = application()
    app.stream("departures", name="updates", **{option: True}).suppress(tg.time_limit("30s")).keep()  # type: ignore[arg-type]
    assert causes(app) == ["a boolean, not a number or a duration"]


def test_a_value_that_cannot_be_used_is_one_problem_with_its_line() -> None:
    app = application()
    app.stream("departures", name="updates", key="string").window("1h").count().to(5)  # type: ignore
    here = test_a_value_that_cannot_be_used_is_one_problem_with_its_line
    line, text = lines(here, 'key="string"'), "a value of type {} is not allowed here"
    place = f"test_problems.py:{line}"
    assert problems(app) == [
        (f"{place} .stream() of updates, key_format", text.format("str")),
        (f"{place} .window() of updates, window", text.format("str")),
        (f"{place} .to() of updates, output", text.format("int")),
    ]


def test_values_of_settings_that_may_be_secret_are_not_shown() -> None:
    for setting in ("kafka", "control"):
        with pytest.raises(ConfigurationError) as caught:
            application(**{setting: b"password"}).check()
        assert "password" not in str(caught.value) and setting in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("operators:\n  a: {kind: suppression}\n  a: {kind: suppression}", "line 3: the key is there already"),
        ("2020-01-01: text", "line 1: a key that is a date"),
    ],
)
def test_a_file_with_a_key_that_it_has_twice_or_that_is_a_date_is_refused_with_the_line(
    text: str, message: str
) -> None:
    with pytest.raises(UserError, match="not YAML") as caught:
        tg.Application.from_yaml(text)
    assert str(caught.value.value).endswith(message)


def test_a_merged_mapping_of_a_file_may_be_overridden() -> None:
    text = """
application: flights
lake: lake
keep_output: 30d
kafka: {bootstrap.servers: "x:1"}
operators:
  first: &first {kind: suppression, input: departures, until: {time_limit: 30s}}
  second: &second {<<: *first, input: arrivals}
  third: {<<: [*second, *first], input: gates}
"""
    found = tg.Application.from_yaml(text).configuration().operators
    assert [each.input for each in found.values()] == ["departures", "arrivals", "gates"]


NOT_A_NAME = ["", "My updates", "carrier-updates", "updates.hourly", "lake/updates", "1st", "n" * 64, "a\n", "größe"]
NOT_A_TOPIC = ["", " ", "carrier updates", "lake/updates", "größe", ".", "..", "t" * 250, "a\n"]


@pytest.mark.parametrize("name", NOT_A_NAME)
def test_a_name_that_views_folders_and_transactional_ids_cannot_have_is_a_problem(name: str) -> None:
    app = application()
    app.stream("departures", name=name).suppress(tg.time_limit("30s")).keep()
    [(place, cause)] = problems(app)
    assert place.startswith("test_problems.py:") and cause == "not a valid name"
    assert [cause for _, cause in problems(tg.Application(name, kafka="x:1", lake="lake", keep_output="1d"))] == [cause]


@pytest.mark.parametrize("topic", NOT_A_TOPIC)
def test_a_topic_that_kafka_cannot_have_is_a_problem_with_the_line_of_its_call(topic: str) -> None:
    app = application()
    app.stream(topic, name="updates").suppress(tg.time_limit("30s")).keep()
    app.table("weather", history="1d", dead_letters=topic)
    app.stream("departures", name="late").suppress(tg.time_limit("30s")).to(topic)
    here, cause = (
        test_a_topic_that_kafka_cannot_have_is_a_problem_with_the_line_of_its_call,
        "not a valid topic name",
    )
    assert set(problems(app)) == {
        (f"test_problems.py:{lines(here, 'app.stream(topic')} .stream() of updates, input", cause),
        (f"test_problems.py:{lines(here, 'app.table(')} .table() of weather, dead_letters", cause),
        (f"test_problems.py:{lines(here, '.to(topic)')} .to() of late, output", cause),
    }


@pytest.mark.parametrize("topic", ["carrier-updates_2.hourly", "A", "1", "t" * 249])
def test_a_topic_may_have_every_name_that_kafka_allows(topic: str) -> None:
    app = application()
    app.stream(topic, name="updates").suppress(tg.time_limit("30s")).keep()
    app.check()


def test_a_table_of_a_topic_whose_name_it_cannot_have_needs_a_name_of_its_own() -> None:
    app = application()
    app.table("weather-readings", history="1d")
    with pytest.raises(ConfigurationError, match="the topic's name is not a valid name of a table") as caught:
        app.check()
    assert [problem.value for problem in caught.value.problems] == ["weather-readings"]
    named = application()
    named.table("weather-readings", name="weather", history="1d")
    named.check()


def test_a_file_is_refused_for_names_and_topics_that_a_program_is_refused_for() -> None:
    text = """
application: My flights
lake: lake
keep_output: 30d
kafka: {bootstrap.servers: "x:1"}
operators:
  carrier updates: {kind: suppression, input: departures, until: {time_limit: 30s}}
  updates: {kind: suppression, input: {topic: all departures}, output: a/b, dead_letters: "", until: {time_limit: 1s}}
"""
    with pytest.raises(ConfigurationError) as caught:
        tg.Application.from_yaml(text)
    assert {(problem.where, problem.value) for problem in caught.value.problems} == {
        ("application", "My flights"),
        ("operators.carrier updates", "carrier updates"),
        ("operators.updates.input", "all departures"),
        ("operators.updates.output", "a/b"),
        ("operators.updates.dead_letters", ""),
    }


def test_a_batch_function_that_a_step_cannot_call_is_a_problem_with_its_remedy() -> None:
    chooses = tg.batch_function()(lambda rows: rows["delay"])
    makes = tg.batch_function(emits={"n": "int64"})(measured.function)

    def problem(step: Callable[[Any], Any]) -> tuple[str, str]:
        app = application()
        step(app.stream("departures", name="updates")).suppress(tg.time_limit("1s")).keep()
        with pytest.raises(ConfigurationError) as caught:
            app.check()
        [found] = caught.value.problems
        return found.cause, found.remedy

    module = "define it with `def` at the top level of a module of its own, and import it from there"
    decorate = 'decorate it with @tg.batch_function(emits={"score": "float64"})'
    plain: Any = sorted
    assert [
        problem(lambda rows: rows.filter(chooses)),
        problem(lambda rows: rows.filter(makes)),
        problem(lambda rows: rows.filter(plain)),
        problem(lambda rows: rows.map(chooses)),
        problem(lambda rows: rows.flat_map(plain)),
    ] == [
        ("Spark's Python workers cannot import it", module),
        ("the function makes values, and does not choose rows", "write .map"),
        ("not a batch function", "decorate it with @tg.batch_function()"),
        ("not a function that says which fields it makes", decorate),
        ("not a function that says which fields it makes", decorate),
    ]


def test_fields_that_a_batch_function_cannot_emit_are_refused_where_it_is_decorated() -> None:
    with pytest.raises(UserError) as refused:
        tg.batch_function(emits="score")  # type: ignore[arg-type]
    assert refused.value.remedy


ORDERS = {"customer": "string", "amount": "float64", "at": "int64", "more": "json", "address": {"zip": "int32"}}


@pytest.mark.parametrize("behind_a_filter", [False, True])
@pytest.mark.parametrize(
    ("field", "cause"),
    [
        ("amuont", "values have no field amuont"),
        ("address.city", "values have no field address.city"),
        ("amount.cents", "values have no field amount.cents"),
        ("customer", "field customer is no number, but string"),
        ("address", "field address is no number, but an object"),
    ],
)
def test_an_aggregate_of_a_field_that_described_values_lack_is_a_problem(
    behind_a_filter: bool, field: str, cause: str
) -> None:
    app = application()
    orders = app.stream("orders", name="totals", value=tg.json(ORDERS))
    orders = orders.filter("amount > 0") if behind_a_filter else orders
    windows = orders.window(tg.tumbling("1h", grace="0s"))
    windows.aggregate(total=tg.sum(field), first=tg.first("customer")).to("totals")
    here = test_an_aggregate_of_a_field_that_described_values_lack_is_a_problem
    [problem] = problems(app)
    line = lines(here, "windows.aggregate(")
    assert problem == (f"test_problems.py:{line} .aggregate() of totals, aggregate", cause)


def test_aggregates_of_fields_that_are_described_or_unknown_are_no_problem() -> None:
    app = application()
    for name, value in (("some", tg.json(ORDERS)), ("any", tg.json())):
        windows = app.stream("orders", name=name, value=value).window(tg.tumbling("1h", grace="0s"))
        fields = (None, "amount", "address.zip", "more", "more.items.size")
        windows.aggregate(**{f"of_{at}": tg.max(field) for at, field in enumerate(fields)}).to(f"{name}-totals")
    app.check()


def test_a_wrong_schema_is_a_problem_of_the_call_that_names_it_whether_or_not_steps_read_it(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long int"}]}
    wrong, app = tg.avro(schema=schema, schemas=tmp_path), application()
    app.stream("of_alone", name="alone", value=wrong).suppress(tg.time_limit("1s")).to("b")
    app.stream("of_chain", name="chain", value=wrong).filter("key IS NOT NULL").suppress(tg.time_limit("1s")).to("d")
    app.stream("of_keys", name="keys", key=wrong).suppress(tg.time_limit("1s")).to("f")
    table = app.table("of_table", name="table", history="1h", value=wrong)
    for name in ("joined", "joined_alone"):
        joined = app.stream("of_join", name=name).join(table, how="inner", grace="1s")
        (joined.filter("key IS NOT NULL") if name == "joined" else joined).to(f"of_{name}")
    here = test_a_wrong_schema_is_a_problem_of_the_call_that_names_it_whether_or_not_steps_read_it
    assert {place for place, cause in problems(app) if cause.endswith("type long int is not defined")} == {
        f"test_problems.py:{lines(here, 'of_alone')} .stream() of alone, value",
        f"test_problems.py:{lines(here, 'of_chain')} .stream() of chain, value",
        f"test_problems.py:{lines(here, 'of_keys')} .stream() of keys, key_format",
        f"test_problems.py:{lines(here, 'of_table')} .table() of table, value_format",
    }


def test_a_wrong_type_of_a_field_is_one_problem_whether_or_not_steps_read_the_field() -> None:
    app, wrong = application(), tg.json({"n": "long"})
    app.stream("of_alone", name="alone", value=wrong).suppress(tg.time_limit("1s")).to("b")
    app.stream("of_chain", name="chain", value=wrong).filter("n > 1").suppress(tg.time_limit("1s")).to("d")
    here = test_a_wrong_type_of_a_field_is_one_problem_whether_or_not_steps_read_the_field
    cause = "field n has the type 'long', which does not exist"
    assert problems(app) == [
        (f"test_problems.py:{lines(here, 'of_alone')} .stream() of alone, value_format", cause),
        (f"test_problems.py:{lines(here, 'of_chain')} .stream() of chain, value_format", cause),
    ]


def test_a_schema_of_avro_may_be_given_as_its_text() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
    assert tg.avro(schema=json.dumps(schema, indent=1), number=7) == tg.avro(schema=schema, number=7)
    app = application()
    app.stream("orders", name="orders", value=tg.avro(schema='{"type": ', schemas="schemas")).keep()
    [(_, cause)] = problems(app)
    assert cause.startswith("not a schema: unexpected end of data")
