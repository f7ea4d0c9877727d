"""What is known of the rows at each place of a pipeline: their columns, and the windows of their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidegate.contracts.config.key_rules import KeyRules, TimeWindows, Windows
from tidegate.contracts.config.operator_config import OperatorConfig, OutputDeclaration
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.values import HeaderForms, KeyForm, Values, struct_of_headers
from tidegate.kernels.codecs.registered import key_type
from tidegate.operators.registry import config_type

WINDOW = ("window_start", "window_end")
HEADERS = "headers"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place of a pipeline: behind its input, or behind a step.

    `headers`: those of records that expressions can read. `windows`: how rows name the windows of their keys. `length`:
    that of the windows, ms; None: unknown, or of any length. `closes_after`: how long after its end a window still
    changes, ms; None: unknown. `maker`: the rules of the step that has put the windows into the keys; None: the input's
    keys have them already. `is_input`: whether rows are records of the input, whose windows only the first operator
    reads. `rekeyed`: whether their keys are others than those by which the input is partitioned. `takes_back`: whether
    a null takes back the result of its window, and passes steps that read values.
    """

    key: KeyForm
    values: Values
    headers: HeaderForms = ()
    windows: Windows
    length: int | None = None
    closes_after: int | None = None
    maker: OperatorRules | None = None
    is_input: bool = False
    rekeyed: bool = False
    takes_back: bool = True

    @property
    def windowed(self) -> bool:
        """Return whether keys have windows."""
        return self.windows not in ("none", "ignore")

    @property
    def columns(self) -> pa.Schema:
        """Return the columns that expressions can read. A field of the value hides another column of its name."""
        windows = WINDOW if self.windowed and not self.is_input else ()
        fields = [pa.field(name, pa.int64()) for name in ("timestamp", *windows)]
        if not self.names_windows_in_keys:
            fields.append(pa.field("key", key_type(self.key)))
        if self.headers:
            fields.append(pa.field(HEADERS, struct_of_headers(self.headers)))
        hidden = {name.lower() for name in self.values.schema.names}
        return pa.schema([*(field for field in fields if field.name not in hidden), *self.values.schema])

    @property
    def names_windows_in_keys(self) -> bool:
        """Return whether the bytes of keys end with their windows."""
        return self.is_input and (self.windows == "session" or isinstance(self.windows, TimeWindows))

    def inferred(self, kind: type[OperatorConfig], raw: dict[str, Any]) -> dict[str, Any]:
        """Return the options that the rows at this place determine for a step of that kind."""
        declared = OutputDeclaration(windows=self.windows, closes_after=self.closes_after)
        known = kind.inferred_options(raw, declared)
        return {name: value for name, value in known.items() if name != "key_format"}

    def behind(self, rules: OperatorRules, emits: pa.Schema | None, table: Values | None = None) -> Place:
        """Return the place behind a step with these rules. `table`: what is known of the values of its table."""
        if table is None and emits is not None:
            table = Values.of_fields(emits)
        config, values = as_config(rules), rules.results(self.values, None if table is None else table.schema)
        if values.form == "joined" and table is not None:
            values = values._replace(sides=(self.values, table))
        if isinstance(rules, KeyRules):
            windows = "headers" if self.windowed else self.windows
            return replace(self, values=values, windows=windows, is_input=False)
        closes_after = config.writes().closes_after
        length = _length(config)
        found = replace(self, values=values, windows="headers", length=length, closes_after=closes_after)
        return replace(found, maker=rules, is_input=False)

    def with_values(self, values: Values) -> Place:
        """Return the place where rows have other values."""
        return replace(self, values=values)


def merged(places: Sequence[Place]) -> Place:
    """Return the place behind a merge of these; raise InvalidValue if their rows are not of the same form."""
    first, *others = places
    for option, differs in _DIFFERENCES.items():
        if any(getattr(other, option) != getattr(first, option) for other in others):
            raise InvalidValue(f"the merged steps {differs}", "change one of them, so that their rows are alike")
    return first


_DIFFERENCES = {
    "is_input": "have records of the input on one side, and results of a step that holds state on another",
    "key": "have keys of different types",
    "rekeyed": "have another key than the input on one side alone",
    "values": "have values with different fields",
    "windows": "do not both have windows in their keys",
    "length": "have windows of different lengths",
    "closes_after": "have windows that close at different times",
}
"""How rows may differ, by the attribute of their places."""


def as_config(rules: OperatorRules) -> OperatorConfig:
    """Return the rules as the configuration of an operator, which says what its results are."""
    found = config_type(rules.kind).model_construct(**dict(rules))
    assert isinstance(found, OperatorConfig)
    return found


def _length(config: OperatorConfig) -> int | None:
    """Return the length of the windows that an operator makes, ms, as Kafka's format of keys needs it."""
    windows = config.model_copy(update={"output_windows": "kafka"}).writes().windows
    return windows.time if isinstance(windows, TimeWindows) else None
