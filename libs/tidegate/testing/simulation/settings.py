"""The settings of a simulated run, drawn from its seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, Literal

from tidegate.contracts.event_time import parse_duration_ms
from tidegate.operators.registry import kinds, kinds_where, test_part
from tidegate.testing.simulation.chance import RATES

INPUT, OUTPUT, SECOND_OUTPUT, DEAD_LETTERS = "records", "suppressed", "branched", "refused"
OUTPUT_BY_KEY, PARTITIONS_BY_KEY = "rekeyed", 4
"""A topic whose partitions keys decide: more of them than the input has."""
APPLICATION, OPERATOR = "simulated", "latest"
OPERATORS: dict[str, dict[str, Any]] = {
    name: {"kind": kind} | options
    for kind in kinds()
    for name, options in test_part(kind, "simulation").SIMULATED.items()
}
"""The configurations of all kinds, without input and output. Some write dead letters, too."""
Edit = Callable[[dict[str, Any], Random], dict[str, Any]]
EDITED: dict[str, Edit] = {
    name: test_part(kind, "simulation").edited
    for kind in kinds()
    for name in getattr(test_part(kind, "simulation"), "CHANGING", ())
}
"""How a person edits some of these configurations while they run, whatever is held: by name, other options."""
[JOINED] = (name for name, options in OPERATORS.items() if "table" in options)
"""A join that runs beside the service of its table."""
TABLES: dict[str, tuple[str, ...]] = {
    name: tuple(each["table"] for each in (options, *options.get("steps", ())) if "table" in each)
    for name, options in OPERATORS.items()
}
"""By configuration the tables that it reads: one for that join, and those of pipelines with joins of the same grace.

Each is an operator of the kind that is a table.
"""
[_TABLE_KIND] = kinds_where("is_table")
TABLE = str(OPERATORS[JOINED]["table"])
TABLE_OPTIONS = {"kind": _TABLE_KIND} | test_part(_TABLE_KIND, "simulation").TABLE_OF_JOIN
TABLE_INPUTS: dict[str, str | list[str]] = {TABLE: TABLE, "prices": ["prices", "discounts"]}
"""The topic of each table, or its topics."""
GRACE_MS = parse_duration_ms(OPERATORS[JOINED]["grace"])
RETENTION_MS = parse_duration_ms(TABLE_OPTIONS["history_retention"])
[_TWO_STREAMS] = (name for name, options in OPERATORS.items() if "right" in options)
FURTHER_INPUT = str(OPERATORS[_TWO_STREAMS]["right"])
"""The right topic of a join of two, and the other topic of a stream that is merged of two."""
MERGED = frozenset(name for name, options in OPERATORS.items() if options.get("input") == [INPUT, FURTHER_INPUT])
TWO_INPUTS = MERGED | {_TWO_STREAMS}
"""Configurations that read two topics."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a run; equal settings give equal runs.

    `moments`: the length of the phase with faults, before the calm at the end. `rebuild_s`: how long the rebuild of a
    state takes, also in the calm phase; an attempt at a batch may take 60 s.
    """

    seed: int
    version: Literal[1, 2]
    partitions: int
    records: int
    moments: int
    operator: str
    faults: tuple[str, ...]
    intensity: float = 1.0
    rebuild_s: float = 0.0
    verbose: bool = False

    @classmethod
    def drawn(cls, seed: int) -> Settings:
        """Return the settings that belong to the seed."""
        generator = Random(f"{seed} settings")
        return cls(
            seed=seed,
            version=generator.choice([1, 2]),
            partitions=generator.choice([1, 2, 2, 3]),
            records=generator.randrange(8, 40),
            moments=generator.randrange(12, 36),
            operator=generator.choice([*sorted(OPERATORS), *sorted(EDITED)]),  # so one run in four edits its steps
            faults=tuple(sorted(RATES)),
            intensity=generator.choice([0.5, 1.0, 1.0, 2.0]),
            rebuild_s=generator.choice([0.0, 40.0, 100.0, 300.0]),
        )

    def smaller(self) -> Iterable[Settings]:
        """Yield smaller variants of the run: with one fault less, then with fewer moments or records."""
        for fault in self.faults:
            yield replace(self, faults=tuple(other for other in self.faults if other != fault))
        for name in ("moments", "records"):
            if (value := getattr(self, name)) > 1:
                yield replace(self, **{name: value // 2})
                yield replace(self, **{name: value - 1})

    def to_json(self) -> str:
        """Return the text of a regression file; inverse of `from_json`."""
        return json.dumps({name: value for name, value in asdict(self).items() if name != "verbose"}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Return the settings that `to_json` wrote."""
        document = json.loads(text)
        return cls(**document | {"faults": tuple(document["faults"])})
