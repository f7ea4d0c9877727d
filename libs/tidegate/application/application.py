"""An application: the settings and the operators of one program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from tidegate.application.definitions.chains import Definitions
from tidegate.application.definitions.definition import Definition
from tidegate.application.display import table_html
from tidegate.application.formats import Format, TimestampIn, TimeWindowedKeys, registered
from tidegate.application.options import (
    Duration,
    Fault,
    Size,
    Unusable,
    as_yaml,
    faults_in,
    field_option,
    option_of,
    optional,
)
from tidegate.application.places import Place, caller
from tidegate.application.program import is_loading
from tidegate.application.streams.stream import Stream, WindowedStream
from tidegate.application.streams.table import Table
from tidegate.contracts.config.topics import topics_problem
from tidegate.contracts.errors import ConfigurationError, Problem, UserError
from tidegate.contracts.naming import NAME_FORM, is_name

if TYPE_CHECKING:
    from tidegate.application.running import Handle
    from tidegate.runtime.configuration.application import Application as Configuration
    from tidegate.state.committed_windows import CommittedWindows

CONTROL = "sqlite:///control.db"
"""The control database if none is named: a file beside the program."""
_SECRET = ("kafka", "spark", "control")
"""Settings whose values are not shown, because passwords may be in them."""


class Application:
    """Operators over Kafka topics, and what they share. It is the same model as a YAML file.

    Relative folders start at the folder of the program; in a notebook or at a prompt, at the working directory.
    Environment variables such as `TIDEGATE_KAFKA__BOOTSTRAP_SERVERS` apply as they do to YAML files.
    """

    def __init__(
        self,
        name: str,
        *,
        kafka: str | Mapping[str, str],
        lake: str | Path,
        keep_output: Duration,
        lake_options: Mapping[str, str] | None = None,
        state: str | Path | None = None,
        control: str | None = CONTROL,
        takeover_after: Duration | None = None,
        trigger: Duration | None = None,
        lake_budget: str | None = None,
        workers_per_operator: int | None = None,
        allow: Sequence[str] = (),
        log: Literal["text", "json"] | None = None,
        telemetry_port: int | None = None,
        telemetry_host: str | None = None,
        spark_master: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
    ) -> None:
        """Define an application without operators; nothing is checked or started.

        `name`: prefix of consumer groups and transactional ids. `kafka`: HOST:PORT, or settings by the Java client's
        names. `lake`: folder of the operator logs, or a url: s3://, gs:// or az://. `keep_output`: how long results
        stay in the logs, such as `30d`, or `forever`. `lake_options`: how to reach a lake in an object store, such as
        `region`. `state`: folder of the local state; default `state`. `control`: URL of the control database; None:
        none. `takeover_after`: how long the lease of a driver must stay without renewal before a standby takes over;
        default: 6s in a folder, 30s in an object store. `trigger`: pause between micro-batches while an operator keeps
        up; default: 200ms in a folder, 5s in an object store. `lake_budget`: what requests to an object store may cost,
        such as `1 USD/day`; default: no limit. `workers_per_operator`: how many workers an operator's partitions are on
        at most; default: all in a folder, two or one for every 50 partitions in an object store. `allow`: modules whose
        functions operators may name as text; those of functions in this program are allowed. `log`: format of log
        lines. `telemetry_port`, `telemetry_host`: where to serve metrics and health checks; default: nowhere.
        `spark_master`, `spark_conf`: the connection to Spark.
        """
        settings = {
            "application": name,
            "lake": str(lake) if isinstance(lake, Path) else lake,
            "state": str(state) if isinstance(state, Path) else state,
            "lake_options": optional(lake_options, Mapping, dict, "pass a mapping"),
            "keep_output": keep_output,
            "kafka": optional(kafka, (str, Mapping), _broker, "write kafka='HOST:PORT', or a mapping of settings"),
            "spark": _section(master=spark_master, conf=optional(spark_conf, Mapping, dict, "pass a mapping")),
            "takeover_after": takeover_after,
            "trigger": trigger,
            "lake_budget": lake_budget,
            "workers_per_operator": workers_per_operator,
            "allow": option_of(allow, (str, Iterable), _modules, "pass a list of names of modules") or None,
            "telemetry": _section(port=telemetry_port, host=telemetry_host),
            "log": log,
            "control": None if control == CONTROL else control,
        }
        self._settings: dict[str, Any] = as_yaml(settings)
        if control is None:
            self._settings["control"] = None
        self._place: Place | None = caller()
        self._unusable = {name: faults for name, value in settings.items() if (faults := faults_in(value))}
        self.folder = self._place.folder
        """Where relative folders start."""
        self._definitions = Definitions()

    @classmethod
    def from_yaml(cls, source: str | Path) -> Application:
        """Return the application that a YAML text describes, or that of a file, if `source` is a Path.

        Raise ConfigurationError with all problems; UserError if the file cannot be read or is not YAML.
        """
        from tidegate.runtime.configuration.application import configured, parse, read_file

        if not isinstance(source, str | Path):
            raise UserError("not a YAML file", value=source, remedy="pass the text, or pathlib.Path(FILE)")
        if isinstance(source, str) and source.endswith((".yaml", ".yml")):
            remedy = "to read a file, pass pathlib.Path(FILE)"
            raise UserError("the text has no configuration", value=source, remedy=remedy)
        raw = read_file(source) if isinstance(source, Path) else parse(source, "the text")
        folder = source.resolve().parent if isinstance(source, Path) else Path.cwd()
        configured(raw, folder)
        application = cls.__new__(cls)
        application._settings = {name: value for name, value in raw.items() if name != "operators"}
        application._place, application.folder, application._unusable = None, folder, {}
        operators = raw.get("operators", {})  # environment variables may be all that defines them
        application._definitions = Definitions(Definition(name, each) for name, each in operators.items())
        return application

    def to_yaml(self) -> str:
        """Return the application as the text of a YAML file. Raise ConfigurationError with all problems.

        Passwords that the program contains are in the text, too; those of environment variables are not.
        """
        from tidegate.runtime.configuration.application import plain

        self.check()
        return str(yaml.safe_dump(plain(self._raw()), sort_keys=False, allow_unicode=True))

    @property
    def name(self) -> str:
        """Return the application's name."""
        return str(self._settings.get("application", ""))

    # ---- what operators read

    def stream(
        self,
        topic: str | Sequence[str],
        *,
        name: str,
        key: Format | None = None,
        value: Format | None = None,
        headers: Mapping[str, Format] | None = None,
        timestamp: str | TimestampIn | None = None,
        windows: Literal["none", "ignore"] | None = None,
        max_ahead: Duration | None = None,
        idle_after: Duration | None = None,
        dead_letters: str | None = None,
        rewind_window: Duration | None = None,
        time: Literal["records"] | None = None,
    ) -> Stream:
        """Return the records of a topic, from which an operator of that name grows.

        `topic`: of a list of topics, the records are merged by time, none beyond the slowest topic that has more; they
        need equal numbers of partitions, and keys and values of the same types. `key`, `value`: types by which steps
        read keys and values, and views show them; default: bytes. `headers`: types of the headers that steps read, as
        `headers.NAME` in expressions; one that a record lacks is null. `timestamp`: the field of a JSON value that
        holds the event time; default: the Kafka record's timestamp. `windows`: what to do with records that name the
        window of their key: reject them (`none`, the default) or `ignore` windows; see `windowed_stream`. `max_ahead`:
        records further ahead of the clock are rejected. `idle_after`: time on the clock without a record after which
        stream time advances on its own. `dead_letters`: topic for late and rejected records. `rewind_window`: how far
        back the log can be read. `time`: in a pipeline the time of each step follows that of the steps before it; with
        `records`, as in Kafka Streams, the rows that arrive at it alone.
        """
        options = _topics(topic)
        options |= _read_as(key, value, timestamp, windows, max_ahead, dead_letters, rewind_window)
        options |= {"idle_after": idle_after, "time": _time_fault(time)}
        return Stream(self._begun(name, ".stream", options, key, value, headers, time), self._definitions)

    def windowed_stream(
        self,
        topic: str | Sequence[str],
        *,
        name: str,
        windows: Literal["headers", "session"] | TimeWindowedKeys | None = None,
        key: Format | None = None,
        value: Format | None = None,
        headers: Mapping[str, Format] | None = None,
        timestamp: str | TimestampIn | None = None,
        max_ahead: Duration | None = None,
        idle_after: Duration | None = None,
        dead_letters: str | None = None,
        rewind_window: Duration | None = None,
        time: Literal["records"] | None = None,
    ) -> WindowedStream:
        """Return the records of a topic whose keys have windows, such as the results of an aggregation.

        `windows`: where a record names its window: in `headers`, or in Kafka's format of windowed keys: `session`, or
        `tg.time_windows("1h")`. It can be left out where an operator of this application writes the topic. The other
        options are those of `stream`.
        """
        options = _topics(topic)
        options |= _read_as(key, value, timestamp, windows, max_ahead, dead_letters, rewind_window)
        options |= {"idle_after": idle_after, "time": _time_fault(time)}
        begun = self._begun(name, ".windowed_stream", options, key, value, headers, time)
        return WindowedStream(begun, self._definitions)

    def _begun(
        self,
        name: str,
        verb: str,
        options: Mapping[str, Any],
        key: Format | None,
        value: Format | None,
        headers: Mapping[str, Format] | None,
        time: str | None,
    ) -> Definition:
        """Begin a stream whose steps read these types, and return its definition."""
        wrong = _headers_fault(headers)
        types = _types(key, value, headers if wrong is None else _UNKNOWN, time)
        begun = Definition.begun(name, verb, caller(), {**options, "headers": wrong})
        self._definitions.begin(stream := replace(begun, types=types))
        return stream

    def table(
        self,
        topic: str | Sequence[str],
        *,
        name: str | None = None,
        history: Duration | None = None,
        versions: Literal["latest"] | None = None,
        hold_for_readers: Size | None = None,
        key: Format | None = None,
        value: Format | None = None,
        timestamp: str | TimestampIn | None = None,
        windows: Literal["none", "ignore", "headers", "session"] | TimeWindowedKeys | None = None,
        max_ahead: Duration | None = None,
        dead_letters: str | None = None,
        rewind_window: Duration | None = None,
    ) -> Table:
        """Register a table of a topic: every version of every key for the `history`, such as `30d` (KIP-889).

        `topic`: a list of topics is merged as by `stream`. `name`: default, the name of its one topic.
        `versions="latest"`: keep the latest values alone, instead of a history. `hold_for_readers`: bytes per partition
        of older versions that are kept for readers still to look them up. The other options are those of `stream` and
        `windowed_stream`.
        """
        options = {
            "kind": "table_history",
            **_topics(topic),
            **_read_as(key, value, timestamp, windows, max_ahead, dead_letters, rewind_window),
            "value_format": optional(value, Format, _checked_format, _FORMATS),
            "history_retention": history,
            "versions": versions,
            "hold_for_readers": hold_for_readers,
        }
        called = _like_topic(topic) if name is None else name
        table = Definition.begun(called, ".table", caller(), options)
        self._definitions.add(table)
        return Table(
            table,
            self._definitions,
            fields=value.fields if isinstance(value, Format) and value.name == "json" else None,
            value=registered(value) if isinstance(value, Format) and value.is_registered else None,
        )

    # ---- what is checked

    def check(self) -> None:
        """Raise ConfigurationError with all problems, each with the file and line of the call that caused it."""
        self.configuration()

    def configuration(self) -> Configuration:
        """Return the checked configuration: environment variables applied, folders absolute. Raise as `check`."""
        from tidegate.runtime.configuration.application import configured

        problems = [*self._problems_of_settings(), *self._definitions.problems()]
        problems += [each for definition in self._definitions.operators.values() for each in definition.wrong_schema()]
        try:
            found = configured(self._raw(), self.folder)
        except ConfigurationError as error:
            placed = [self._placed(problem) for problem in error.problems if not _is_told(problem, problems)]
            raise ConfigurationError([*problems, *(problem for problem in placed if problem is not None)]) from None
        problems = problems or [*self._problems_of_fields(found)]
        if problems:
            raise ConfigurationError(problems)
        return found

    def _problems_of_fields(self, found: Configuration) -> Iterator[Problem]:
        """Yield fields that operators name and their values lack; pipelines have been checked for that."""
        for name, definition in self._definitions.operators.items():
            for option, problem in definition.unknown_fields(found.operators[name]):
                placed = definition.placed(problem.at(option, None))
                if placed is not None:
                    yield placed

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same application, wherever their programs and files are."""
        return isinstance(other, Application) and self._content() == other._content()

    __hash__ = None  # type: ignore[assignment]  # what is defined may change

    def _content(self) -> object:
        """Return what decides equality: the validated application, or what was written if that is not valid."""
        from tidegate.runtime.configuration.application import application_of

        try:
            return application_of({"control": CONTROL, **self._raw()})
        except ConfigurationError:
            return self._raw()

    def _raw(self) -> dict[str, Any]:
        """Return the application as a YAML file has it."""
        operators = self._definitions.operators
        named = self._settings.get("allow", ())
        trusted = {module for each in operators.values() for module in each.trusted if module not in named}
        allow = {"allow": [*named, *sorted(trusted)]} if trusted else {}
        return {**self._settings, **allow, "operators": {name: each.as_yaml() for name, each in operators.items()}}

    def _problems_of_settings(self) -> Iterator[Problem]:
        """Yield what is wrong with settings that YAML cannot express."""
        for name, faults in self._unusable.items():
            for fault in faults:
                value = "(hidden)" if name in _SECRET else fault.value
                yield Problem(where=self._where(name), value=value, cause=fault.cause, remedy=fault.remedy)

    def _where(self, setting: str) -> str:
        return f"{self._place} Application(), {setting}"

    def _placed(self, problem: Problem) -> Problem | None:
        """Return the problem with the place of its call; None if it follows from a value that could not be used."""
        section, _, rest = problem.where.partition(".")
        if section == "operators":  # a name that is refused may have dots itself, as topics have
            concerned = [
                each for name, each in self._definitions.operators.items() if f"{rest}.".startswith(f"{name}.")
            ]
            return max(concerned, key=lambda each: len(each.name)).placed(problem) if concerned else problem
        if section in self._unusable:
            return None
        return problem if self._place is None else replace(problem, where=self._where(problem.where))

    # ---- what is shown

    def __repr__(self) -> str:
        operators = ", ".join(
            f"{name}: {each.options.get('kind')}" for name, each in self._definitions.operators.items()
        )
        return f"<Application {self.name}: {operators or 'no operators'}>"

    def _repr_html_(self) -> str:
        rows = [
            {
                "operator": name,
                "kind": each.options.get("kind", ""),
                "input": ", ".join(each.inputs),
                "output": ", ".join(each.topics),
            }
            for name, each in self._definitions.operators.items()
        ]
        return table_html(self.name, rows)

    # ---- what runs

    def run(self) -> None:
        """Run all operators until SIGTERM or Ctrl-C, which finish and publish the current batch.

        A running Spark session is used and left running. While a command such as `tidegate status app.py:app` loads the
        program, this does nothing. Raise ConfigurationError with all problems, and the error of an operator that ended.
        """
        if is_loading.get():
            return
        from tidegate.application.running import run

        before, self._definitions.is_running = self._definitions.is_running, lambda: True
        try:
            run(self.configuration(), self.folder)
        finally:
            self._definitions.is_running = before

    def start(self) -> Handle:
        """Start all operators in the background, and return a handle; nothing can be defined until it is stopped.

        If the application runs in this process already, return the same handle; if that runs with other content, it is
        stopped first. So a notebook's cell can be run again. Raise ConfigurationError with all problems.
        """
        if is_loading.get():
            remedy = 'write it under: if __name__ == "__main__":'
            raise UserError("a command loads this program, and does not start it", value=self.name, remedy=remedy)
        from tidegate.application.running import start

        handle = start(self.configuration(), self.folder)
        self._definitions.is_running = lambda: handle.is_running
        return handle

    # ---- what is read

    def windows(self, name: str, version: int | None = None) -> CommittedWindows:
        """Return the windows that an operator holds, as of a version of its log; default: the newest (KIP-428).

        Of a pipeline with several steps that hold windows, name the step as well: `OPERATOR.STEP`. Raise UserError if
        there is no such operator, if it holds no windows, or if it has not run yet.
        """
        from tidegate.runtime.configuration.named_steps import step_with_windows
        from tidegate.state.committed_windows import CommittedWindows

        if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
            raise UserError("a version is a whole number", value=version, remedy="leave it out for the newest one")
        configuration = self.configuration()
        found = step_with_windows(configuration, name)
        return CommittedWindows(configuration.lake / found.operator, version, found.step)


def _section(**options: Any) -> dict[str, Any] | None:
    """Return a section of the file; None if all of its options are left out."""
    return options if any(value is not None for value in options.values()) else None


def _broker(kafka: str | Mapping[str, str]) -> dict[str, str]:
    return {"bootstrap.servers": kafka} if isinstance(kafka, str) else dict(kafka)


def _modules(allowed: str | Iterable[str]) -> list[str]:
    return [allowed] if isinstance(allowed, str) else list(allowed)


def _like_topic(topic: object) -> Any:
    """Return the topic's name as the name of its table, if it can be one; topics may have more characters."""
    if isinstance(topic, list | tuple):
        cause = "a table of several topics has the name of none of them"
    elif isinstance(topic, str) and not is_name(topic):
        cause = "the topic's name is not a valid name of a table"
    else:
        return topic
    return Unusable(Fault(topic, cause, f"add name=..., with {NAME_FORM}"))


def _read_as(
    key: Format | None,
    value: Format | None,
    timestamp: str | TimestampIn | None,
    windows: str | TimeWindowedKeys | None,
    max_ahead: Duration | None,
    dead_letters: str | None,
    rewind_window: Duration | None,
) -> dict[str, Any]:
    """Return the options that say how the records of a topic are read."""
    return {
        "key_format": optional(key, Format, _checked_format, _FORMATS),
        "value_format": optional(value, Format, _shown_as, _FORMATS),
        "timestamp": optional(timestamp, (str, TimestampIn), _field, "name a field, or write tg.timestamp(FIELD)"),
        "windows": {"time": windows.length} if isinstance(windows, TimeWindowedKeys) else windows,
        "max_ahead": max_ahead,
        "dead_letters": dead_letters,
        "rewind_window": rewind_window,
    }


def _topics(topic: str | Sequence[str]) -> dict[str, Any]:
    """Return the options that name the input topics."""
    if isinstance(topic, str | bytes) or not isinstance(topic, Sequence):
        return {"input": _topic(topic)}
    if (problem := topics_problem(topic)) is not None:
        return {"input": Unusable(Fault(topic, problem.cause, problem.remedy))}
    first, *others = map(_topic, topic)
    return {"input": first, "further_inputs": others or None}


def _topic(name: Any) -> Any:
    return option_of(name, str, lambda each: each, "name a topic as text")


def _is_told(problem: Problem, told: Sequence[Problem]) -> bool:
    """Return whether it is a problem of a table's values which the call that defines the table has told already."""
    return problem.where.endswith(".table_value") and problem.cause in {each.cause for each in told}


_FORMATS = "write a format, such as tg.string(), tg.json() or tg.int64()"


def _checked_format(form: Format) -> Any:
    """Return the format in which views show keys or values, as `_shown_as` does, or what is wrong with their schema."""
    from tidegate.operators.pipeline.rules.value_types import problem_of_registered

    if not form.is_registered or faults_in(form.fields):
        return _shown_as(form)
    problem = problem_of_registered(registered(form))
    return None if problem is None else Unusable(Fault(form.fields["schema"], problem.cause, problem.remedy))


def _shown_as(form: Format) -> Any:
    """Return the format in which views show keys or values; None for Avro and Protobuf, whose schemas say it."""
    faults = faults_in(form.fields)
    if faults:
        return Unusable(faults[0])
    if form.name == "uuid":
        return "string"
    return None if form.is_registered else form.name


_UNKNOWN = "unknown"
"""Types that are refused, and with them no step: what is wrong with them is a problem of their call."""


def _headers_fault(headers: object) -> Unusable | None:
    """Return what is wrong with the headers that steps read; None if nothing is."""
    remedy = "write headers={NAME: tg.string()}, or another format of Kafka's own serializers"
    if not isinstance(headers, Mapping):
        fault = Fault(headers, "not the headers that steps read", remedy)
        return None if headers is None else Unusable(fault)
    for name, form in headers.items():
        if not isinstance(form, Format) or form.is_registered or form.name == "json":
            return Unusable(Fault(form, f"header {name} has no format of Kafka's own serializers", remedy))
    return None


def _time_fault(time: object) -> Unusable | None:
    """Return what is wrong with the time of a pipeline's steps; None if nothing is."""
    remedy = "write time='records', or leave it out"
    return None if time in (None, "records") else Unusable(Fault(time, "not a time of steps", remedy))


def _types(
    key: Format | None, value: Format | None, headers: Mapping[str, Format] | str | None, time: str | None
) -> dict[str, Any]:
    """Return the types of keys, values and headers, by which expressions read them, and the time of steps."""
    found: dict[str, Any] = {"time": time} if time == "records" else {}
    if headers:
        found["headers"] = headers if isinstance(headers, str) else {name: f.name for name, f in headers.items()}
    if isinstance(key, Format) and key.name not in ("bytes", "json") and not isinstance(_checked_format(key), Unusable):
        found["key"] = registered(key) if key.is_registered else key.name
    if isinstance(value, Format) and value.name not in ("bytes", "json") and not value.is_registered:
        found["value"] = value.name
    if isinstance(value, Format) and value.name == "json" and value.fields is not None:
        found["value"] = {"json": as_yaml(value.fields)}
    if isinstance(value, Format) and value.is_registered:
        found["value"] = registered(value)
    return found


def _field(timestamp: str | TimestampIn) -> dict[str, str]:
    if isinstance(timestamp, TimestampIn):
        return field_option(timestamp.field) | {"unit": timestamp.unit}
    return field_option(timestamp)
