"""Changes of a pipeline's steps, judged step by step: which of them the state allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.contracts.config import Held, OperatorRules, PartChange
from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.contracts.values import Values
from tidegate.operators.pipeline.rules.graph import Graph
from tidegate.operators.pipeline.rules.places import Place, as_config
from tidegate.operators.pipeline.rules.steps import Sink, Stateful, StepRules, as_computed, steps_as_written

_ANOTHER_KIND = "the state of one kind cannot become that of another"
_BESIDE_RULES = frozenset({"emits", "from", "table_value"})
"""What a step that holds state has beside its rules, and may change."""
_ANOTHER_STATE = "the held state was made under the old value"
_ANOTHER_ORDER = "steps that hold state keep their order: another order is another pipeline"
_NOT_AT_THE_END = (
    "a new step that holds state goes behind all others: those behind it would hold rows that it has not seen"
)
_READS_A_TABLE = "the log's batches have read its table, and later ones would not"
_READ_NO_TABLE = "it would read a table that the log's batches have not read"
_KNOWN_OF_FIRST = "only of the first step it is recorded since when closed windows are known"
_OTHER_NUMBERS = (
    "behind flat_map rows are numbered by arrival, otherwise by their offsets, and the state has such numbers"
)
_STARTS_EMPTY = "it starts empty, with what leaves the steps before it from now on"
_FORMER_STEPS = "what is held behind them was made by the former steps"


class Chain(NamedTuple):
    """The steps of a pipeline: those that hold state by name, in order, each with the place before it.

    `between`: the stateless steps before each of them, and at None those behind the last, as they would be written. So
    are those of a pipeline with branches: a branch is written behind others.
    """

    stateful: dict[str, Stateful]
    places: dict[str, Place]
    between: dict[str | None, list[dict[str, Any]]]

    @classmethod
    def of(cls, steps: Sequence[StepRules], places: Sequence[Place]) -> Chain:
        """Return the chain of the steps, of which each has the place before it."""
        chain, run = cls({}, {}, {}), list[dict[str, Any]]()
        for step, place in zip(steps, places, strict=False):
            if isinstance(step, Stateful):
                chain.stateful[step.name], chain.places[step.name], chain.between[step.name] = step, place, run
                run = []
            elif not isinstance(step, Sink):
                run.append(as_computed(step))
        chain.between[None] = run
        return chain


def is_chain(steps: Sequence[StepRules]) -> bool:
    """Return whether each step reads the one before it, and only the last one's results are written."""
    return not any(isinstance(step, Sink) or step.sources or step.keep for step in steps)


def changes_of_steps(before: Chain, after: Chain, held: Held, known: int) -> Iterator[PartChange]:
    """Yield what differs between two chains.

    `held`: how much a step of `before` holds. `known`: how far behind the first step's time closed windows are still
    known, ms.
    """
    common = [name for name in after.stateful if name in before.stateful]
    yield from _order(common, [name for name in before.stateful if name in after.stateful])
    for name in before.stateful:
        if name not in after.stateful:
            yield _removed(before, name, held)
        elif name in common:
            yield from _changed(before, after, name, known)
    for at, name in enumerate(after.stateful):
        if name not in before.stateful:
            # rule: new-step-last
            refused = None if set(list(after.stateful)[at:]).isdisjoint(common) else _NOT_AT_THE_END
            if after.stateful[name].rules.reads():
                refused = _READ_NO_TABLE
            yield PartChange(f"steps.{name}", None, _written(after.stateful[name]), refused, _STARTS_EMPTY)
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


def _order(common: list[str], before: list[str]) -> Iterator[PartChange]:
    # rule: steps-keep-order
    if common != before:
        yield PartChange("steps", ", ".join(before), ", ".join(common), _ANOTHER_ORDER)


def _removed(before: Chain, name: str, held: Held) -> PartChange:
    """Return the removal of a step, which must hold nothing.

    Steps behind the first one number the rows that they hold by arrival, and would have to go on with offsets of the
    input: so if that is removed, they must hold nothing either.
    """
    first = next(iter(before.stateful))
    # rule: removed-first-all-empty
    holding = {step: held(step) for step in (before.stateful if name == first else [name])}
    refused = None
    # rule: removed-step-empty
    if any(holding.values()):
        told = ", ".join(f"{step} holds {count:,}" for step, count in holding.items() if count)
        refused = f"{told}: let `tidegate flush` release it, and windows expire"
    elif before.stateful[name].rules.reads():
        refused = _READS_A_TABLE
    return PartChange(f"steps.{name}", _written(before.stateful[name]), None, refused)


def _changed(before: Chain, after: Chain, name: str, known: int) -> Iterator[PartChange]:
    """Yield what differs in a step that both have, by the rules of its kind."""
    was, now = before.stateful[name].rules, after.stateful[name].rules
    if was.kind != now.kind:
        # rule: step-keeps-kind
        yield PartChange(f"steps.{name}.kind", was.kind, now.kind, _ANOTHER_KIND)
        return
    is_first = name == next(iter(before.stateful))
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
    first = next(iter(before.stateful), None)
    for name in (*common, None):
        if was[name] != now[name]:
            where = f"steps before {name}" if name else "steps behind the last" if common else "steps"
            note = None if name is None else _FORMER_STEPS
            # rule: first-numbers-stay
            renumbered = _multiplies(was[name]) != _multiplies(now[name])
            refused = _OTHER_NUMBERS if renumbered and name is not None and name == first else None
            yield PartChange(where, was[name] or None, now[name] or None, refused, note)


def _multiplies(steps: Sequence[dict[str, Any]]) -> bool:
    """Return whether one row may become several, which are then numbered by arrival."""
    return any("flat_map" in step for step in steps)


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
    return step.rules.model_dump(mode="json") | {option: _written(step).get(option) for option in sorted(_BESIDE_RULES)}
