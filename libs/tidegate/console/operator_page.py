"""What an operator's page shows beside its status: the newest batches, the steps, and the configuration in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from tidegate.console.overview import EARLIER
from tidegate.contracts.batch_metadata import BatchMeta, Counts
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.runtime.configuration.application import settings_of
from tidegate.runtime.configuration.written import written
from tidegate.runtime.telemetry.batch_metrics import by_step

NEWEST_BATCHES = 25

COUNTED = ("records_in", "applied", "superseded", "late", "rejected", "emitted")


class BatchLine(NamedTuple):
    """A batch: `since_ms` is the time since the batch before it, None for the oldest one. `counts`: what it did, and
    what is held after it. `recovered`: why local states had to be recovered, by partition."""

    batch: int
    action: str
    clock_ms: int
    since_ms: int | None
    partitions: int
    counts: Mapping[str, int]
    recovered: Mapping[int, str]


class StepLine(NamedTuple):
    """A step of a pipeline: `counts` are of the batches that the page shows, `held` is now."""

    name: str
    counts: Mapping[str, int]
    held: int | None


class OptionLine(NamedTuple):
    """An option that is set: the value that the operator runs with, the file's if that differs, and what it means."""

    name: str
    value: str | None
    in_file: str | None
    meaning: str


@dataclass(frozen=True, kw_only=True)
class OperatorHistory:
    """The newest batches of an operator, newest first, its steps, and its configuration."""

    batches: Sequence[BatchLine]
    steps: Sequence[StepLine]
    options: Sequence[OptionLine]


def history_of(metas: Sequence[BatchMeta], config: OperatorConfig, metrics: Mapping[str, Any]) -> OperatorHistory:
    """Return what these batches, oldest first, say about the operator; the oldest only says when the next one began.

    `metrics`: the operator's, as its status has them; empty if they are not known.
    """
    return OperatorHistory(
        batches=batch_lines(metas)[:NEWEST_BATCHES],
        steps=step_lines(config.operators, metas, metrics),
        options=option_lines(config, metas[-1].settings),
    )


def status_after(meta: BatchMeta) -> dict[str, Any]:
    """Return the status of an operator as it was after the batch, as far as the log says it."""
    why = {"rule": EARLIER, "text": "the operator as it was after this batch"}
    partitions = [
        {
            "partition": partition,
            "offset": known.next_offset,
            "lag": None,
            "stream_time": known.stream_time,
            "last_batch": None if known.last is None else known.last[0],
            "why": why,
            **asdict(known.totals),
        }
        for partition, known in sorted(meta.partitions.items())
    ]
    facts = {"batch": meta.batch, "action": meta.action, "clock": meta.clock, "metrics": {}}
    return {"log": meta.operator, "why": why, "partitions": partitions, **facts}


def without_log(config: OperatorConfig) -> OperatorHistory:
    """Return what is known of an operator whose log is not there: the configuration in the file."""
    return OperatorHistory(batches=[], steps=[], options=option_lines(config, {}))


def batch_lines(metas: Sequence[BatchMeta]) -> list[BatchLine]:
    """Return a line for each batch, newest first; `metas` begin with the oldest."""
    before: list[BatchMeta | None] = [None, *metas[:-1]]
    return [_batch_line(meta, was) for was, meta in zip(before, metas, strict=True)][::-1] if metas else []


def _batch_line(meta: BatchMeta, before: BatchMeta | None) -> BatchLine:
    recovered = {partition: change.recovered for partition, change in meta.changed.items() if change.recovered}
    held = sum(known.totals.held for known in meta.partitions.values())
    return BatchLine(
        batch=meta.batch,
        action=meta.action,
        clock_ms=meta.clock,
        since_ms=None if before is None else meta.clock - before.clock,
        partitions=len(meta.changed),
        counts=_sums(change.counts for change in meta.changed.values()) | {"held": held},
        recovered=recovered,
    )


def step_lines(steps: Iterable[str], metas: Sequence[BatchMeta], metrics: Mapping[str, Any]) -> list[StepLine]:
    """Return a line for each step of a pipeline that these batches have counted, those that hold state first."""
    ledgers = [change.ledger for meta in metas for change in meta.changed.values()]
    counted = dict.fromkeys([*steps, *(name for ledger in ledgers for name in ledger)])
    held = {name: own.get("held_now") for name, own in by_step(metrics).items()}
    return [
        StepLine(name, _sums(ledger[name] for ledger in ledgers if name in ledger), held.get(name)) for name in counted
    ]


def option_lines(config: OperatorConfig, runs_with: Mapping[str, Any]) -> list[OptionLine]:
    """Return a line for each option that is set. `runs_with`: the settings in the log; empty if they are not known."""
    in_file = settings_of(config)
    names = [name for name in type(config).model_fields if name in in_file or name in runs_with]
    return [_option_line(type(config), name, in_file, runs_with or in_file) for name in names]


def _option_line(
    config: type[OperatorConfig], name: str, in_file: Mapping[str, Any], runs_with: Mapping[str, Any]
) -> OptionLine:
    value, wanted = (written(settings[name]) if name in settings else "default" for settings in (runs_with, in_file))
    meaning = " ".join((config.model_fields[name].description or "").split())
    return OptionLine(name, value, wanted if wanted != value else None, meaning)


def _sums(counts: Iterable[Counts]) -> dict[str, int]:
    counted = list(counts)
    return {name: sum(getattr(each, name) for each in counted) for name in COUNTED}
