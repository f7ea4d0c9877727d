"""An application: the settings and the operators of one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from tidegate.application.definitions import Definition, Definitions
from tidegate.application.display import table_html
from tidegate.application.formats import Format, TimestampIn, TimeWindowedKeys
from tidegate.application.options import Duration, Size, as_yaml
from tidegate.application.places import Place, caller
from tidegate.application.program import is_loading
from tidegate.application.streams import Stream, Table, WindowedStream
from tidegate.contracts.errors import ConfigurationError, Problem, UserError
from tidegate.contracts.naming import log_path

if TYPE_CHECKING:
    from tidegate.application.running import Handle
    from tidegate.runtime.configuration.application import Application as Configuration
    from tidegate.state.committed_windows import CommittedWindows

CONTROL = "sqlite:///control.db"
"""The control database if none is named: a file beside the program."""


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
        state: str | Path | None = None,
        control: str | None = CONTROL,
        trigger: Duration | None = None,
        allow: Sequence[str] = (),
        log: Literal["text", "json"] | None = None,
        telemetry_port: int | None = None,
        telemetry_host: str | None = None,
        spark_master: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
    ) -> None:
        """Define an application without operators; nothing is checked or started.

        `name`: prefix of consumer groups and transactional ids. `kafka`: HOST:PORT, or settings by the Java client's
        names. `lake`: folder of the operator logs. `keep_output`: how long results stay in the logs, such as `30d`, or
        `forever`. `state`: folder of the local state; default `state`. `control`: URL of the control database; None:
        none. `trigger`: pause between micro-batches. `allow`: modules whose functions operators may name as text; those
        of functions in this program are allowed. `log`: format of log lines. `telemetry_port`, `telemetry_host`: where
        to serve metrics and health checks; default: nowhere. `spark_master`, `spark_conf`: the connection to Spark.
        """
        settings = {
            "application": name,
            "lake": str(lake) if isinstance(lake, Path) else lake,
            "state": str(state) if isinstance(state, Path) else state,
            "keep_output": keep_output,
            "kafka": dict(kafka) if isinstance(kafka, Mapping) else _broker(kafka),
            "spark": _section(master=spark_master, conf=None if spark_conf is None else dict(spark_conf)),
            "trigger": trigger,
            "allow": ([allow] if isinstance(allow, str) else list(allow)) or None,
            "telemetry": _section(port=telemetry_port, host=telemetry_host),
            "log": log,
        }
        self._settings: dict[str, Any] = as_yaml(settings)
        if control != CONTROL:
            self._settings["control"] = control
        self._place: Place | None = caller()
        self.folder = self._place.folder
        """Where relative folders start."""
        self._definitions = Definitions()

    @classmethod
    def from_yaml(cls, source: str | Path) -> Application:
        """Return the application that a YAML text describes, or that of a file, if `source` is a Path.

        Raise ConfigurationError with all problems; UserError if the file cannot be read or is not YAML.
        """
        from tidegate.runtime.configuration.application import configured, parse, read_file

        raw = read_file(source) if isinstance(source, Path) else parse(source, "the text")
        folder = source.resolve().parent if isinstance(source, Path) else Path.cwd()
        configured(raw, folder)
        application = cls.__new__(cls)
        application._settings = {name: value for name, value in raw.items() if name != "operators"}
        application._place, application.folder = None, folder
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
        return str(self._settings["application"])

    # ---- what operators read

    def stream(
        self,
        topic: str,
        *,
        name: str,
        key: Format | None = None,
        value: Format | None = None,
        timestamp: str | TimestampIn | None = None,
        windows: Literal["none", "ignore"] | None = None,
        max_ahead: Duration | None = None,
        idle_after: Duration | None = None,
        dead_letters: str | None = None,
        rewind_window: Duration | None = None,
    ) -> Stream:
        """Return the records of a topic, from which an operator of that name grows.

        `key`, `value`: formats in which views show them; default: bytes. `timestamp`: the field of a JSON value that
        holds the event time; default: the Kafka record's timestamp. `windows`: what to do with records that name the
        window of their key: reject them (`none`, the default) or `ignore` windows; see `windowed_stream`. `max_ahead`:
        records further ahead of the clock are rejected. `idle_after`: time on the clock without a record after which
        stream time advances on its own. `dead_letters`: topic for late and rejected records. `rewind_window`: how far
        back the operator's log can be read.
        """
        options = _input(topic, key, value, timestamp, windows, max_ahead, dead_letters, rewind_window)
        stream = Definition(name).after(".stream", caller(), options | {"idle_after": idle_after})
        self._definitions.begin(stream)
        return Stream(stream, self._definitions)

    def windowed_stream(
        self,
        topic: str,
        *,
        name: str,
        windows: Literal["headers", "session"] | TimeWindowedKeys | None = None,
        key: Format | None = None,
        value: Format | None = None,
        timestamp: str | TimestampIn | None = None,
        max_ahead: Duration | None = None,
        idle_after: Duration | None = None,
        dead_letters: str | None = None,
        rewind_window: Duration | None = None,
    ) -> WindowedStream:
        """Return the records of a topic whose keys have windows, such as the results of an aggregation.

        `windows`: where a record names its window: in `headers`, or in Kafka's format of windowed keys: `session`, or
        `tg.time_windows("1h")`. It can be left out where an operator of this application writes the topic. The other
        options are those of `stream`.
        """
        options = _input(topic, key, value, timestamp, windows, max_ahead, dead_letters, rewind_window)
        stream = Definition(name).after(".windowed_stream", caller(), options | {"idle_after": idle_after})
        self._definitions.begin(stream)
        return WindowedStream(stream, self._definitions)

    def table(
        self,
        topic: str,
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

        `name`: default, the topic's name. `versions="latest"`: keep the latest values alone, instead of a history.
        `hold_for_readers`: bytes per partition of older versions that are kept for readers still to look them up. The
        other options are those of `stream` and `windowed_stream`.
        """
        options = {
            "kind": "table_history",
            **_input(topic, key, value, timestamp, windows, max_ahead, dead_letters, rewind_window),
            "history_retention": history,
            "versions": versions,
            "hold_for_readers": hold_for_readers,
        }
        table = Definition(topic if name is None else name).after(".table", caller(), options)
        self._definitions.add(table)
        return Table(table, self._definitions)

    # ---- what is checked

    def check(self) -> None:
        """Raise ConfigurationError with all problems, each with the file and line of the call that caused it."""
        self.configuration()

    def configuration(self) -> Configuration:
        """Return the checked configuration: environment variables applied, folders absolute. Raise as `check`."""
        from tidegate.runtime.configuration.application import configured

        definitions = self._definitions.operators.values()
        problems = [problem for each in definitions for problem in each.problems]
        problems += [_without_output(stream) for stream in self._definitions.unfinished]
        try:
            found = configured(self._raw(), self.folder)
        except ConfigurationError as error:
            raise ConfigurationError([*problems, *map(self._placed, error.problems)]) from None
        if problems:
            raise ConfigurationError(problems)
        return found

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
        trusted = {module for each in operators.values() for module in each.trusted} - set(named)
        allow = {"allow": [*named, *sorted(trusted)]} if trusted else {}
        return {**self._settings, **allow, "operators": {name: each.as_yaml() for name, each in operators.items()}}

    def _placed(self, problem: Problem) -> Problem:
        section, _, rest = problem.where.partition(".")
        if section == "operators":  # a name that is refused may have dots itself, as topics have
            concerned = [
                each for name, each in self._definitions.operators.items() if f"{rest}.".startswith(f"{name}.")
            ]
            return max(concerned, key=lambda each: len(each.name)).placed(problem) if concerned else problem
        if self._place is None:
            return problem
        return replace(problem, where=f"{self._place} Application(), {problem.where}")

    # ---- what is shown

    def __repr__(self) -> str:
        operators = ", ".join(
            f"{name}: {each.options.get('kind')}" for name, each in self._definitions.operators.items()
        )
        return f"<Application {self.name}: {operators or 'no operators'}>"

    def _repr_html_(self) -> str:
        rows = [
            {"operator": name, **{column: each.options.get(column, "") for column in ("kind", "input", "output")}}
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

        Raise UserError if there is no such operator, if it holds no windows, or if it has not run yet.
        """
        from tidegate.operators.registry import kinds_where
        from tidegate.runtime.configuration.application import select_operators
        from tidegate.state.committed_windows import CommittedWindows

        configuration = self.configuration()
        select_operators(configuration, name, kinds_where("holds_windows"))
        return CommittedWindows(log_path(configuration.lake, name), version)


def _section(**options: Any) -> dict[str, Any] | None:
    """Return a section of the file; None if all of its options are left out."""
    return options if any(value is not None for value in options.values()) else None


def _broker(servers: str | None) -> dict[str, str] | None:
    return None if servers is None else {"bootstrap.servers": servers}


def _input(
    topic: str,
    key: Format | None,
    value: Format | None,
    timestamp: str | TimestampIn | None,
    windows: str | TimeWindowedKeys | None,
    max_ahead: Duration | None,
    dead_letters: str | None,
    rewind_window: Duration | None,
) -> dict[str, Any]:
    """Return the options that say how a topic is read."""
    return {
        "input": topic,
        "key_format": None if key is None else key.name,
        "value_format": None if value is None else value.name,
        "timestamp": vars(timestamp) if isinstance(timestamp, TimestampIn) else _field(timestamp),
        "windows": {"time": windows.length} if isinstance(windows, TimeWindowedKeys) else windows,
        "max_ahead": max_ahead,
        "dead_letters": dead_letters,
        "rewind_window": rewind_window,
    }


def _field(timestamp: str | None) -> dict[str, str] | None:
    return None if timestamp is None else {"field": timestamp}


def _without_output(stream: Definition) -> Problem:
    return Problem(
        where=f"{stream.calls[-1]} of {stream.name}",
        value=stream.name,
        cause="the stream has no output",
        remedy="call a method such as .suppress(...), then .to(TOPIC) or .keep()",
    )
