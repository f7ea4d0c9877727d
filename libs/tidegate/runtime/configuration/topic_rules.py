"""Rules for the topics that the operators of a file may share. Pure functions.

An operator must not read its own output, neither directly nor through others: its records would circulate for ever.
Two operators may share a topic for results of the same form, or a topic for dead letters, but never one for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from tidegate.contracts.config.operator_config import OperatorConfig, Output
from tidegate.contracts.errors import Problem

Operators = Mapping[str, OperatorConfig]


def topic_problems(operators: Operators) -> list[Problem]:
    """Return a problem for each loop of operators and for each topic that two operators must not both write."""
    return [*_loops(operators), *_collisions(operators)]


def _loops(operators: Operators) -> Iterator[Problem]:
    reported = set[str]()
    for name in operators:
        path = _way_back(name, operators)
        if path is not None and reported.isdisjoint(path):
            reported.update(path)
            yield Problem(
                where=f"operators.{name}.input",
                value=" -> ".join([*path, name]),
                cause="the operators read their own output: their records would circulate for ever",
                remedy="give one of them an output of its own",
            )


def _way_back(name: str, operators: Operators) -> list[str] | None:
    """Return the shortest path of an operator's records back to itself, its own name first; None if there is none."""
    ways, seen = [[name]], set[str]()
    for way in ways:  # breadth-first search: the list grows while it is iterated over
        for reader in _readers(way[-1], operators):
            if reader == name:
                return way
            if reader not in seen:
                seen.add(reader)
                ways.append([*way, reader])
    return None


def _readers(name: str, operators: Operators) -> list[str]:
    written = {*_outputs(operators[name]), operators[name].dead_letters}
    return [other for other, config in operators.items() if written.intersection(config.inputs)]


def _collisions(operators: Operators) -> Iterator[Problem]:
    for (name, config), (other, others) in combinations(operators.items(), 2):
        for topic in sorted(_outputs(config).keys() & _outputs(others).keys()):
            if _form(config, topic) != _form(others, topic):
                yield _collision(other, "output", topic, f"{name} writes records of a different format there")
        for writer, output, refuser, letters in ((name, config, other, others), (other, others, name, config)):
            if letters.dead_letters in _outputs(output):
                cause = f"{writer} writes its results there, and dead letters have another format"
                yield _collision(refuser, "dead_letters", letters.dead_letters, cause)


def _outputs(config: OperatorConfig) -> dict[str, Output]:
    return {output.topic: output for output in config.outputs()}


def _form(config: OperatorConfig, topic: str) -> tuple[str, str | None, int | None]:
    """Return what a reader of an output has to know: the kind of operator, how it adds windows to records, and whether
    keys decide their partitions."""
    output = _outputs(config)[topic]
    return config.kind, output.windows, output.partitions


def _collision(name: str, option: str, topic: str | None, cause: str) -> Problem:
    return Problem(where=f"operators.{name}.{option}", value=topic, cause=cause, remedy="name another topic")
