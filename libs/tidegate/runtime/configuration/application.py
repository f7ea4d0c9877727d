"""The configuration file of one application and its operators, checked as a whole before anything starts."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, SecretStr, ValidationInfo, field_validator

from tidegate.contracts.config.base import Config, read
from tidegate.contracts.config.key_rules import KeyRules
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.option_types import Duration, Folder, Keep, ModuleName, Name
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import ConfigurationError, InvalidValue, Problem, UserError
from tidegate.contracts.naming import servers_problem
from tidegate.control.address import Address, url_problem
from tidegate.operators.registry import config_type, kind_of, kinds_where
from tidegate.runtime.configuration.daily_cost import DailyCost
from tidegate.runtime.configuration.feeds import read_together
from tidegate.runtime.configuration.lake_place import LakePlace
from tidegate.runtime.configuration.topic_rules import topic_problems
from tidegate.runtime.configuration.view_names import view_problems
from tidegate.state.lake.place import Place, options_problem
from tidegate.state.request_budget import LONGEST_DELAY_S

ENVIRONMENT_PREFIX = "TIDEGATE_"
_OTHER_VARIABLES = {"TIDEGATE_NUMBA", "TIDEGATE_HOME", "TIDEGATE_KILL_AT"}

_AS_IT_IS = ("kafka", "control", "lake_options")
"""Sections of the file whose environment variables are taken as plain text; others are parsed as YAML."""

CONTROL = "sqlite:///control.db"
"""The control database if the file names none."""

TAKEOVER_AFTER_MS, TAKEOVER_AFTER_REMOTE_MS = 6_000, 30_000
"""Defaults of `takeover_after`, for a lake that is a folder and for an object store."""

TRIGGER_MS, TRIGGER_REMOTE_MS = 200, 5_000
"""Defaults of `trigger`, for a lake that is a folder and for an object store."""

# rule: no-spark-retries
_EVERY_TASK_ONCE = {
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
}
"""Required Spark settings: only Tidegate's driver retries a batch, with a new attempt."""


class SparkConfig(Config):
    """The connection to Spark."""

    master: Annotated[str, Field(pattern=r"\S")] = "local[*]"
    """Spark master URL."""
    conf: dict[str, str] = Field(default_factory=dict)
    """Further Spark settings, by Spark's names."""

    @field_validator("conf")
    @classmethod
    def _spark_must_not_retry(cls, conf: dict[str, str]) -> dict[str, str]:
        again = [name for name, value in _EVERY_TASK_ONCE.items() if conf.get(name, value).strip().lower() != value]
        if again:
            raise InvalidValue("Spark would retry tasks, or run a task twice at once", f"remove {', '.join(again)}")
        return conf


class TelemetryConfig(Config):
    """The HTTP endpoint of a service for monitoring: `/metrics`, `/healthz`, `/readyz`."""

    port: Annotated[int, Field(ge=1, le=65_535)]
    """Listen port; each process on a machine needs its own."""
    host: Annotated[str, Field(pattern=r"^\S+$")] = "127.0.0.1"
    """Listen address. With 0.0.0.0, everybody who can reach the machine can read the metrics."""


class Application(Config):
    """The content of one configuration file."""

    application: Name
    """Prefix of consumer groups and transactional ids."""
    lake: LakePlace
    """Folder of the operator logs, or a url: s3://, gs:// or az://; the Delta table of operator NAME is <lake>/NAME."""
    lake_options: dict[str, str] = Field(default_factory=dict, repr=False)
    """How to reach a lake in an object store: endpoint, region, profile, secret_file; never a secret itself."""
    state: Folder = Path("state")
    """Folder of the local state on each machine; it may be deleted at any time and is then rebuilt from the log."""
    keep_output: Keep
    """How long emissions, late and rejected rows stay in the logs."""
    control: SecretStr | None = None
    """URL of the control database, sqlite:///FILE or postgresql+psycopg://...; default: control.db beside the file;
    null: none.
    """
    kafka: dict[str, str] = Field(repr=False)
    """Kafka settings, by the Java client's names."""
    spark: SparkConfig = Field(default=SparkConfig(), repr=False)
    """The connection to Spark."""
    takeover_after: Annotated[Duration, Field(ge=1_000)] | None = None
    """How long a driver's lease has to stay without renewal before another driver may take over; the driver renews it
    three times as often. Default: 6s if the lake is a folder, 30s in an object store, where each renewal costs money.
    """
    trigger: Duration | None = None
    """Pause between micro-batches while an operator keeps up; 0: none. Default: 200ms if the lake is a folder, 5s in an
    object store, where each batch costs money.
    """
    lake_budget: DailyCost | None = None
    """What requests to an object store may cost at list prices, such as 1 USD/day, for all operators together; batches
    wait for it, up to 30 s each. Default: no limit.
    """
    workers_per_operator: Annotated[int, Field(ge=1)] | None = None
    """How many workers an operator's partitions are on at most; each writes a file in each batch. Default: all workers
    if the lake is a folder; in an object store two, or one for every 50 partitions.
    """
    allow: tuple[ModuleName, ...] = ()
    """Modules whose functions operators may call, such as a join function."""
    telemetry: TelemetryConfig | None = None
    """HTTP endpoint of a service for metrics and health checks; default: none."""
    log: Literal["text", "json"] = "text"
    """Log format of a service: text or JSON."""
    operators: dict[str, OperatorConfig]
    """The operators, by name."""

    @field_validator("operators", mode="before")
    @classmethod
    def _typed(cls, raw: object, info: ValidationInfo) -> object:
        if not isinstance(raw, Mapping):
            return raw
        problems: list[Problem] = []
        known = read_together(raw, problems)
        typed = {name: known.get(name) for name in raw}
        for name, config in known.items():
            problems += _problems_among(name, config, known, raw)
            problems += _forbidden_functions(name, config, info.data.get("allow", ()))
        problems += [*topic_problems(known), *view_problems(known)]
        if problems:
            raise _Problems(problems)
        return typed

    @field_validator("lake_options")
    @classmethod
    def _lake_options_are_known(cls, options: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if "lake" in info.data and (problem := options_problem(options, info.data["lake"])) is not None:
            raise problem
        return options

    @field_validator("lake_budget")
    @classmethod
    def _budget_is_for_an_object_store(cls, usd: float | None, info: ValidationInfo) -> float | None:
        if usd is not None and "lake" in info.data and info.data["lake"].is_local:
            raise InvalidValue("the lake is a folder, where requests cost nothing", "remove it")
        return usd

    @field_validator("control")
    @classmethod
    def _control_database(cls, control: SecretStr | None) -> SecretStr | None:
        if control is not None and (problem := url_problem(control.get_secret_value())) is not None:
            raise problem
        return control

    @field_validator("kafka")
    @classmethod
    def _kafka_options_are_valid(cls, options: dict[str, str]) -> dict[str, str]:
        if "bootstrap.servers" not in options:
            raise InvalidValue("no broker is named", "add bootstrap.servers: HOST:PORT")
        if (problem := servers_problem(options["bootstrap.servers"])) is not None:
            raise InvalidValue(f"bootstrap.servers: {problem.cause}", problem.remedy)
        return options

    @property
    def control_database(self) -> Address | None:
        """Return the address of the control database; None if there is none."""
        return None if self.control is None else Address(self.control.get_secret_value())

    @property
    def trigger_ms(self) -> int:
        """Return `trigger`, or its default for this lake."""
        if self.trigger is not None:
            return self.trigger
        return TRIGGER_MS if self.lake.is_local else TRIGGER_REMOTE_MS

    @property
    def longest_pause_s(self) -> float:
        """Return the longest time that a driver waits between two rounds."""
        return max(self.trigger_ms / 1_000, 0.0 if self.lake_budget is None else LONGEST_DELAY_S)

    @property
    def takeover_after_ms(self) -> int:
        """Return `takeover_after`, or its default for this lake."""
        if self.takeover_after is not None:
            return self.takeover_after
        return TAKEOVER_AFTER_MS if self.lake.is_local else TAKEOVER_AFTER_REMOTE_MS

    def with_operator(self, name: str, config: OperatorConfig) -> Application:
        """Return a copy of the application with this configuration of an operator."""
        return self.model_copy(update={"operators": {**self.operators, name: config}})


class _Problems(Exception):
    """The problems of the operators, raised through pydantic, which does not wrap exceptions of this type."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems


def _problems_among(
    name: str, config: OperatorConfig, known: Mapping[str, OperatorConfig], raw: Mapping[str, Any]
) -> list[Problem]:
    """Return the problems with the tables that the operator reads."""
    found = []
    for each in config.reads():
        if each.table in raw and each.table not in known:  # the table has problems of its own
            continue
        table = known[each.table].as_table() if each.table in known else None
        if table is None:
            remedy = f"name an operator of kind {' or '.join(kinds_where('is_table'))}"
            refused = [InvalidValue("not a table of this file", remedy)]
        else:
            refused = list(config.table_conflicts(table, each.step))
        found += [problem.at(f"operators.{name}.table", each.table) for problem in refused]
    return found


def _forbidden_functions(name: str, config: OperatorConfig, allowed: Sequence[str]) -> list[Problem]:
    return [
        Problem(
            where=f"operators.{name}",
            value=function,
            cause="a function of a module that the file does not allow",
            remedy=f"if you trust it, add allow: [{function.partition(':')[0]}] to the file",
        )
        for function in config.functions()
        if function.partition(":")[0] not in allowed
    ]


def load(file: Path) -> Application:
    """Read the configuration file, with environment variables applied; relative paths start at the file's folder.

    Raise ConfigurationError with all problems of the file; UserError if it cannot be read or is not YAML.
    """
    return configured(read_file(file), file.resolve().parent)


def configured(raw: dict[str, Any], folder: Path) -> Application:
    """Return the application, with environment variables applied; relative paths start at the folder.

    Raise ConfigurationError with all problems.
    """
    application = application_of({"control": CONTROL, **override(raw, os.environ)})
    control = application.control_database
    return application.model_copy(
        update={
            "lake": application.lake.within(folder),
            "state": folder / application.state,
            "control": None if control is None else SecretStr(control.within(folder).url),
        }
    )


def application_of(raw: dict[str, Any]) -> Application:
    """Return the application that the raw configuration describes, its lake with the options to reach it.

    Raise ConfigurationError with all problems.
    """
    try:
        application = read(Application, raw)
        lake = Place.of(application.lake.url, {**dict(application.lake.options), **application.lake_options})
        return application.model_copy(update={"lake": lake})
    except _Problems as found:
        problems = [*found.problems, *_problems_beside_operators(raw)]
    raise ConfigurationError(problems)


def _problems_beside_operators(raw: dict[str, Any]) -> tuple[Problem, ...]:
    try:
        read(Application, {**raw, "operators": {}})
    except ConfigurationError as error:
        return error.problems
    return ()


def read_file(file: Path) -> dict[str, Any]:
    """Return the raw configuration of the file. Raise UserError if it cannot be read or is not YAML."""
    try:
        text = file.read_text()
    except OSError as error:
        remedy = "name an existing YAML file, or a program and its application, such as app.py:app"
        raise UserError(f"the file cannot be read: {error.strerror}", value=file, remedy=remedy) from None
    except UnicodeDecodeError as error:
        place = f"{file}: byte {error.start}"
        raise UserError("the file is not text in UTF-8", value=place, remedy="name a YAML file") from None
    return parse(text, str(file))


def parse(text: str, source: str) -> dict[str, Any]:
    """Return the raw configuration that the text holds. Raise UserError if it is not YAML."""
    try:
        raw = yaml.load(text, _UniqueKeys)
    except yaml.YAMLError as error:
        raise UserError("the file is not YAML", value=f"{source}: {_place(error)}", remedy="fix that line") from None
    if not isinstance(raw, dict):
        raise UserError("the file has no configuration", value=source, remedy="start with application: NAME")
    return raw


class _UniqueKeys(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Reads YAML, and refuses keys that are dates, and keys that a mapping has twice, such as two operators' names.

    Of two equal keys the last one would win. Merged mappings (`<<`) may be overridden.
    """

    def compose_mapping_node(self, anchor: str | None) -> Any:
        """Return the node of a mapping. Raise ConstructorError at the second of two equal keys, and at a date."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.tag.endswith(":timestamp"):
                raise yaml.constructor.ConstructorError(None, None, "a key that is a date", key.start_mark)
            if key.value in seen and not key.tag.endswith(":merge"):
                raise yaml.constructor.ConstructorError(None, None, "the key is there already", key.start_mark)
            seen.add(key.value)
        return node


def _place(error: yaml.YAMLError) -> str:
    """Return where the error is and what it is, without the text of the line, which may hold a secret."""
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}: {getattr(error, 'problem', '')}" if mark is not None else type(error).__name__


def plain(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the configuration in the plain types of YAML; members of a StrEnum, say, are text."""
    copied: dict[str, Any] = json.loads(json.dumps(raw, default=str))
    return copied


def override(raw: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration with environment variables applied: `TIDEGATE_A__B=x` sets a.b to x.

    In names of Kafka settings `_` stands for `.`: `TIDEGATE_KAFKA__BOOTSTRAP_SERVERS`.
    """
    result = plain(raw)
    for variable, value in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in _OTHER_VARIABLES:
            path = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
            _put(result, path, value if path[0] in _AS_IT_IS else yaml.safe_load(value))
    return result


def _put(raw: dict[str, Any], path: list[str], value: object) -> None:
    *folders, name = path
    for folder in folders:
        raw = raw.setdefault(folder, {})
    if folders and folders[0] == "kafka":
        name = name.replace("_", ".")
    raw[name] = value


def settings_of(config: OperatorRules) -> dict[str, Any]:
    """Return the configuration as it would be written, without default values; `config_of` reads it back."""
    return {"kind": config.kind} | config.model_dump(mode="json", exclude_defaults=True)


def config_of(settings: Mapping[str, Any]) -> OperatorConfig:
    """Return the configuration that `settings_of` wrote. Raise ConfigurationError if this release cannot read it."""
    kind = config_type(settings["kind"])
    if issubclass(kind, KeyRules) and "windows" not in settings:
        # rule: log-without-windows/opened
        settings = {**settings, "windows": kind.windows_before(settings)}
    return read(kind, settings)


def rules_of(settings: Mapping[str, Any]) -> OperatorRules:
    """Return the rules that `settings_of` wrote, between topics or without. Raise ConfigurationError as `config_of`."""
    return config_of(settings) if "input" in settings else read(kind_of(settings["kind"]).rules, settings)


def config_hash(config: OperatorRules) -> str:
    """Return a short hash of all options, which decide the operator's output."""
    text = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def select_operators(application: Application, name: str | None, kinds: Collection[str] = ()) -> list[str]:
    """Return the names of the operators to run: the named one, or all, of those kinds if any are given.

    Raise UserError if there is none.
    """
    names = [
        found
        for found, config in application.operators.items()
        if name in (None, found) and (not kinds or config.kind in kinds)
    ]
    if not names:
        known = ", ".join(f"{found} ({config.kind})" for found, config in application.operators.items())
        wanted = ", ".join(kinds)
        problem = (
            f"the operator is not of kind {wanted}"
            if name in list(application.operators)
            else "no such operator in the file"
        )
        raise UserError(
            problem,
            value=wanted if name is None else name,
            remedy=f"name one of the file's operators: {known or 'it has none'}",
        )
    return names
