"""Reading the operators of a file together: the writer of a topic determines input options of the topic's readers.

An option that contradicts the writer of the input is a problem of the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tidegate.contracts.config.base import read
from tidegate.contracts.config.operator_config import OperatorConfig, OutputDeclaration
from tidegate.contracts.config.topics import flatten_topics
from tidegate.contracts.errors import ConfigurationError, InvalidValue, Problem, UserError
from tidegate.contracts.naming import name_problem
from tidegate.operators.registry import config_type, kinds

Known = TypeVar("Known")


def read_together(raw: Mapping[str, Any], problems: list[Problem]) -> dict[str, OperatorConfig]:
    """Return the operators without problems, by name. Append all problems, each with its place, to `problems`."""
    reading = _Reading(raw)
    found = {name: reading.operator(name) for name in raw}
    problems += reading.problems
    return {name: config for name, config in found.items() if config is not None}


class _Reading:
    """The operators of one file, each read after those that write its input."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = {
            name: flatten_topics(value) if isinstance(value, Mapping) else value for name, value in raw.items()
        }
        self._read: dict[str, OperatorConfig | None] = {}
        self.problems: list[Problem] = []

    def operator(self, name: str) -> OperatorConfig | None:
        """Return the operator; None while it is being read, or if it has problems."""
        if name not in self._read:
            self._read[name] = None
            self._read[name] = self._checked(name)
        return self._read[name]

    def _checked(self, name: str) -> OperatorConfig | None:
        where, raw = f"operators.{name}", self._raw[name]
        try:
            topics = self._inputs_of(raw)
            config = _read(where, name, raw, _agreed(topics))
        except ConfigurationError as error:
            self.problems += error.problems
            return None
        except UserError as error:
            unknown = Problem(where=f"{where}.kind", value=error.value, cause=error.problem, remedy=error.remedy)
            self.problems.append(unknown)
            return None
        # an option that contradicts the writers of several topics is one problem
        conflicts = {option: each for topic in topics for option, each in config.conflicts(topic)}
        self.problems += [each.at(f"{where}.{option}", raw.get(option)) for option, each in conflicts.items()]
        return config

    def _inputs_of(self, raw: Any) -> list[OutputDeclaration]:
        """Return what the writers of each topic that this operator reads say of it, as far as they agree.

        What no operator of the file writes is like the other topics.
        """
        writers = map(self._writers_of, _input_topics(raw))
        return [_agreed(said) for said in writers if said]

    def _writers_of(self, topic: object) -> list[OutputDeclaration]:
        names = [name for name, other in self._raw.items() if isinstance(other, Mapping) and _writes(other, topic)]
        return [config.declares(str(topic)) for config in map(self.operator, names) if config is not None]


def _input_topics(raw: Any) -> list[object]:
    """Return what is named as the input topics."""
    if not isinstance(raw, Mapping):
        return []
    further = raw.get("further_inputs")
    return [raw.get("input"), *(further if isinstance(further, list | tuple) else ())]


def _agreed(said: Sequence[OutputDeclaration]) -> OutputDeclaration:
    """Return what all of them say."""
    return (
        OutputDeclaration(*(_common_value(values) for values in zip(*said, strict=True)))
        if said
        else OutputDeclaration()
    )


def _read(where: str, name: str, raw: Any, topic: OutputDeclaration) -> OperatorConfig:
    """Return the operator, with options that are left out taken from the writer of its input.

    Options taken from there do not count as set by the file (`model_fields_set`).
    """
    if (problem := name_problem(name)) is not None:
        raise ConfigurationError([problem.at(where, name)])
    if not isinstance(raw, Mapping) or "kind" not in raw:
        raise ConfigurationError([InvalidValue("kind is required", f"add kind: {kinds()[0]}").at(where, raw)])
    kind = config_type(str(raw["kind"]))
    config = read(kind, {**kind.inferred_options(raw, topic), **raw}, where)
    return kind.model_construct(_fields_set=config.model_fields_set & set(raw), **dict(config))


def _writes(raw: Mapping[str, Any], topic: object) -> bool:
    steps = raw.get("steps")
    sinks = [step.get("to") for step in steps if isinstance(step, Mapping)] if isinstance(steps, list) else []
    return topic is not None and topic in [raw.get("output"), *sinks]


def _common_value(values: tuple[Known | None, ...]) -> Known | None:
    """Return the value on which all writers agree; None if they differ."""
    return values[0] if all(each == values[0] for each in values) else None
