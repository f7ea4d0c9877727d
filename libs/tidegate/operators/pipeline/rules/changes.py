"""Changes of a pipeline's steps, judged step by step: which of them the state allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.contracts.config.rules import Held, OperatorRules, PartChange
from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.contracts.values import Values
from tidegate.operators.pipeline.rules.graph import Graph, Origins, Wire
from tidegate.operators.pipeline.rules.places import Place, as_config
from tidegate.operators.pipeline.rules.steps import Sink, Stateful, StepRules, as_computed, steps_as_written
from tidegate.operators.pipeline.steps import INPUT

_ANOTHER_KIND = "the state of one kind cannot become that of another"
_BESIDE_RULES = frozenset({"emits", "table_value"})
"""What a step that holds state has beside its rules, and may change."""
_OF_THE_INPUT = frozenset({"timestamp", "max_ahead", "rewind_window"})
"""Options of the whole pipeline that its steps have where they read the input; there they are judged."""
_ANOTHER_STATE = "the held state was made under the old value"
_ANOTHER_ORDER = "steps that hold state keep their order: another order is another pipeline"
_NOT_AT_THE_END = (
    "a new step that holds state goes to the end of a branch: those behind it would hold rows that it has not seen"
)
_BEFORE_THE_FIRST = "the first step has the stream time of the partition, and a new one has none: write it behind"
_READS_OTHERS = "it would miss rows that the steps before it hold, or get some again"
_READS_A_TABLE = "the log's batches have read its table, and later ones would not"
_READ_NO_TABLE = "it would read a table that the log's batches have not read"
_KNOWN_OF_FIRST = "only of the first step it is recorded since when closed windows are known"
_OTHER_NUMBERS = "rows of the input have its offsets and timestamps, and others are numbered by arrival"
_STARTS_EMPTY = "it starts empty, with what leaves the steps before it from now on"
_FORMER_STEPS = "what is held behind them was made by the former steps"


class Chain(NamedTuple):
    """The steps of a pipeline: those that hold state by name, in order, each with the place before it.

    `wires`: what comes to each of them. `between`: the stateless steps before each of them, and at None those behind
    the last, as they would be written. So are those of a pipeline with branches: a branch is written behind others.
    """

    stateful: dict[str, Stateful]
    places: dict[str, Place]
    wires: dict[str, Wire]
    between: dict[str | None, list[dict[str, Any]]]

    @classmethod
    def of(cls, steps: Sequence[StepRules], places: Sequence[Place]) -> Chain:
        """Return the chain of the steps, of which each has the place before it."""
        chain, run = cls({}, {}, Graph(steps).wires(), {}), list[dict[str, Any]]()
        for step, place in zip(steps, places, strict=False):
            if isinstance(step, Stateful):
                chain.stateful[step.name], chain.places[step.name], chain.between[step.name] = step, place, run
                run = []
            elif not isinstance(step, Sink):
                run.append(as_computed(step))
        chain.between[None] = run
        return chain

    @property
    def first(self) -> str | None:
        """Return the name of the first step that holds state, whose time is that of the partition."""
        return next(iter(self.stateful), None)

    def stands_before(self, name: str, others: Sequence[str]) -> bool:
        """Return whether what leaves the step of that name reaches one of the others."""
        behind = [step for step, wire in self.wires.items() if name in _names(wire.origins)]
        return any(step in others or self.stands_before(step, others) for step in behind)

    def origins(self, name: str, common: Sequence[str]) -> Origins:
        """Return from where rows come to a step, if those that are not common to both pipelines were not there."""
        return self._common(self.wires[name].origins, common)

    def _common(self, origins: Origins, common: Sequence[str]) -> Origins:
        if isinstance(origins, tuple):
            return tuple(self._common(each, common) for each in origins)
        return origins if origins in (INPUT, *common) else self.origins(origins, common)


def _names(origins: Origins) -> list[str]:
    """Return the names of the steps, or of the input, from which rows come, in their order."""
    return [name for each in origins for name in _names(each)] if isinstance(origins, tuple) else [origins]


def changes_of_steps(before: Chain, after: Chain, held: Held, known: int) -> Iterator[PartChange]:
    """Yield what differs between two pipelines.

    `held`: how much a step of `before` holds. `known`: how far behind the first step's time closed windows are still
    known, ms.
    """
    common = [name for name in after.stateful if name in before.stateful]
    former = [name for name in before.stateful if name in after.stateful]
    # rule: steps-keep-order
    if common != former:
        yield PartChange("steps", ", ".join(former), ", ".join(common), _ANOTHER_ORDER)
    for name in before.stateful:
        if name not in after.stateful:
            yield _removed(before, after, name, held)
        else:
            yield from _changed(before, after, name, known)
            yield from _rewired(before, after, name, common, held) if common == former else ()
    yield from (_added(after, name, common) for name in after.stateful if name not in before.stateful)
    yield from _stateless(before, after, common)


def changes_of_results(before: Sequence[StepRules], after: Sequence[StepRules]) -> Iterator[PartChange]:
    """Yield what differs in where the results of steps go: which are kept, and which are written to topics."""
    was, now = (_results(steps) for steps in (before, after))
    for option in was:
        if was[option] != now[option]:
            yield PartChange(f"steps.{option}", was[option] or None, now[option] or None)


def _results(steps: Sequence[StepRules]) -> dict[str, Any]:
    kept = [step.name for step in steps if not isinstance(step, Sink) and step.keep]
    return {"keep": kept, "to": {each.sink.to: each.node for each in Graph(steps).written()}}


def _removed(before: Chain, after: Chain, name: str, held: Held) -> PartChange:
    """Return the removal of a step, which must hold nothing.

    The time of the first step is that of the partition. The step that becomes the first one goes on at that time: so it
    must hold nothing either, because its own time may be earlier.
    """
    # rule: next-first-empty
    becomes_first = after.first if name == before.first and after.first in before.stateful else None
    # rule: removed-step-empty
    refused = _while_held([name, *filter(None, [becomes_first])], held)
    if refused is None and before.stateful[name].rules.reads():
        refused = _READS_A_TABLE
    return PartChange(f"steps.{name}", _written(before.stateful[name]), None, refused)


def _while_held(names: Sequence[str], held: Held) -> str | None:
    """Return which of these steps hold something, and what to do about it; None if none does."""
    told = ", ".join(f"{name} holds {count:,}" for name in names if (count := held(name)))
    return f"{told}: let `tidegate flush` release it, and windows expire" if told else None


def _added(after: Chain, name: str, common: Sequence[str]) -> PartChange:
    """Return the arrival of a step, which is the end of a branch, and is not written before all others."""
    steps, refused = list(after.stateful), None
    # rule: new-step-last
    if after.stands_before(name, common):
        refused = _NOT_AT_THE_END
    # rule: new-step-not-first
    elif common and steps.index(name) < steps.index(common[0]):
        refused = _BEFORE_THE_FIRST
    elif after.stateful[name].rules.reads():
        refused = _READ_NO_TABLE
    return PartChange(f"steps.{name}", None, _written(after.stateful[name]), refused, _STARTS_EMPTY)


def _rewired(before: Chain, after: Chain, name: str, common: Sequence[str], held: Held) -> Iterator[PartChange]:
    """Yield the change of what a step reads: it may miss those that are gone, and rows may have other numbers."""
    was, now = before.wires[name], after.wires[name]
    refused = None
    # rule: branches-keep-wires
    if before.origins(name, common) != after.origins(name, common):
        refused = _READS_OTHERS
    # rule: renumbered-step-empty
    elif _is_of_input(before, name) != _is_of_input(after, name) and (holding := _while_held([name], held)):
        refused = f"{_OTHER_NUMBERS}; {holding}"
    read = [_written(chain.stateful[name]).get("from") for chain in (before, after)]
    if was != now:
        yield PartChange(f"steps.{name}.from", _shown(was), _shown(now), refused)
    elif read[0] != read[1]:
        yield PartChange(f"steps.{name}.from", *read)


def _is_of_input(chain: Chain, name: str) -> tuple[bool, bool]:
    """Return whether the rows of a step have the offsets of the input, and whether they have its timestamps."""
    return chain.wires[name].of_input, chain.places[name].is_input


def _shown(wire: Wire) -> str:
    behind = " behind flat_map" if wire.origins == INPUT and not wire.of_input else ""
    return ", ".join(_names(wire.origins)) + behind


def _changed(before: Chain, after: Chain, name: str, known: int) -> Iterator[PartChange]:
    """Yield what differs in a step that both have, by the rules of its kind."""
    was, now = before.stateful[name].rules, after.stateful[name].rules
    if was.kind != now.kind:
        # rule: step-keeps-kind
        yield PartChange(f"steps.{name}.kind", was.kind, now.kind, _ANOTHER_KIND)
        return
    is_first = name == before.first
    reasons = as_config(now).incompatibilities(as_config(was), known if is_first else MAX_TIMESTAMP)
    # rule: known-of-first-step
    if not is_first and (now.closed_kept_for_ms() or 0) > (was.closed_kept_for_ms() or 0):
        reasons = {"retention": _KNOWN_OF_FIRST} | reasons
    old, new = (_options(chain.stateful[name]) for chain in (before, after))
    for option in new:
        if old[option] != new[option]:
            refused = reasons.get(option, None if option in now.live | _BESIDE_RULES else _ANOTHER_STATE)
            yield PartChange(f"steps.{name}.{option}", old[option], new[option], refused)
    # rule: held-columns-keep-type
    yield from _other_columns(name, was, before.places[name].values, after.places[name].values)


def _other_columns(name: str, rules: OperatorRules, was: Values, now: Values) -> Iterator[PartChange]:
    """Yield each column of a step's input that the step holds, and that has another type now."""
    held = rules.held_columns(was)
    if len(held) and was.form != now.form:
        yield PartChange(f"steps.{name}", was.form, now.form, f"it holds values of the form {was.form}")
        return
    for field in held:
        at = now.schema.get_field_index(field.name)
        if at >= 0 and _differ(field.type, now.schema.field(at).type):
            types = str(field.type), str(now.schema.field(at).type)
            refused = f"{name} holds values whose field {field.name} is of type {types[0]}"
            yield PartChange(f"steps.{name}.input.{field.name}", *types, refused)


def _differ(was: pa.DataType, now: pa.DataType) -> bool:
    """Return whether a value of the one type cannot be read as of the other. Fields within it may come and go."""
    if not (pa.types.is_struct(was) and pa.types.is_struct(now)):
        return bool(was != now)
    named = [field.name for field in was if now.get_field_index(field.name) >= 0]
    return any(_differ(was.field(name).type, now.field(name).type) for name in named)


def _stateless(before: Chain, after: Chain, common: Sequence[str]) -> Iterator[PartChange]:
    """Yield the runs of stateless steps that differ; those before a removed step belong to the next one that stays."""
    was, now = (_runs(chain, common) for chain in (before, after))
    for name in (*common, None):
        if was[name] != now[name]:
            where = f"steps before {name}" if name else "steps behind the last" if common else "steps"
            note = None if name is None else _FORMER_STEPS
            yield PartChange(where, was[name] or None, now[name] or None, note=note)


def _runs(chain: Chain, common: Sequence[str]) -> dict[str | None, list[dict[str, Any]]]:
    found: dict[str | None, list[dict[str, Any]]] = {}
    run = list[dict[str, Any]]()
    for name, steps in chain.between.items():
        run = [*run, *steps]
        if name is None or name in common:
            found[name], run = run, []
    return found


def _written(step: Stateful) -> dict[str, Any]:
    [written] = steps_as_written([step])
    return written


def _options(step: Stateful) -> dict[str, Any]:
    """Return all options of a step, also those that other parts of the pipeline determine."""
    rules = step.rules.model_dump(mode="json", exclude=set(_OF_THE_INPUT))
    return rules | {option: _written(step).get(option) for option in sorted(_BESIDE_RULES)}
