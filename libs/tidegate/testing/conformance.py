"""The conformance runner: runs recorded scenarios against the operators.

A scenario file, gzip or plain, has one JSON document per line: `id`, `operator`, `config`, `input`, `expected`. A
scenario of an operator without an adapter fails.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tidegate.contracts.errors import UserError
from tidegate.operators.registry import kinds, test_part

Scenario = Mapping[str, Any]
Adapter = Callable[[Scenario], dict[str, Any]]
"""Runs a scenario and returns the result in the form of `expected`, without parts that the operator does not have."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Outcome of the scenarios of one operator in one file; `differences` has one line per failed scenario."""

    operator: str
    file: str
    passed: int
    differences: tuple[str, ...]

    @property
    def failed(self) -> int:
        """Number of failed scenarios."""
        return len(self.differences)


def run_files(files: Iterable[Path], operator: str | None = None) -> list[Result]:
    """Run the scenarios and return one result per operator and file; with `operator`, of that operator alone.

    Raise UserError if a file cannot be read or if there is nothing to run.
    """
    results = [result for file in files for result in _run_file(file, operator)]
    if not results:
        raise UserError("no scenario to run", value=operator, remedy="name an operator that the files have")
    return results


def scenarios(file: Path) -> Iterator[Scenario]:
    """Yield the scenarios of a file. Raise UserError if it cannot be read or a line is not JSON."""
    try:
        with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
            for line in lines:
                yield json.loads(line)
    except (OSError, ValueError) as error:
        raise UserError(f"not a file of scenarios: {error}", value=str(file), remedy="give JSON lines") from error


@cache
def adapters() -> dict[str, Adapter]:
    """Return the adapters of all kinds by the names of recorded scenarios."""
    found: dict[str, Adapter] = {}
    for kind in kinds():
        found |= test_part(kind, "adapters").ADAPTERS
    return found


def difference(scenario: Scenario) -> str | None:
    """Run the scenario and return the first difference from its expected result; None if there is none."""
    adapter = adapters().get(scenario["operator"])
    if adapter is None:
        return f"{scenario['id']}: the operator {scenario['operator']} is not built"
    expected, found = scenario["expected"], adapter(scenario)
    for part in (part for part in expected if part in found):
        if text := _first_difference(part, expected[part], found[part]):
            return f"{scenario['id']}: {text}"
    return None


def _run_file(file: Path, operator: str | None) -> Iterator[Result]:
    by_operator: dict[str, list[Scenario]] = {}
    for scenario in scenarios(file):
        by_operator.setdefault(scenario["operator"], []).append(scenario)
    for name in by_operator if operator is None else by_operator.keys() & {operator}:
        found = [difference(scenario) for scenario in by_operator[name]]
        differences = tuple(text for text in found if text)
        yield Result(operator=name, file=file.name, passed=len(found) - len(differences), differences=differences)


def _first_difference(part: str, expected: Any, found: Any) -> str:
    if part == "exception":
        expected, found = (error and error["at_offset"] for error in (expected, found))
        return "" if expected == found else f"fails at offset {found}, expected {expected}"
    if not isinstance(expected, list):
        return "" if expected == found else f"{part} is {found}, expected {expected}"
    for index in range(max(len(expected), len(found))):
        wanted, got = (rows[index] if index < len(rows) else "nothing" for rows in (expected, found))
        if wanted != got:
            return f"{part}[{index}] is {got}, expected {wanted}"
    return ""
