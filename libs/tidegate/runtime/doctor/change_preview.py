"""Preview of a configuration change: the operator's own step is run on a copy of the committed state.

Nothing is written. The state is read from the log into memory, one partition at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import cast

from tidegate.contracts.batch_metadata import BatchMeta, Pin
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.errors import TidegateError, Unavailable
from tidegate.contracts.event_time import format_duration_ms
from tidegate.contracts.operator import OperatorState, ReadTable, TableReader
from tidegate.contracts.records import Records
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.registry import operator_for
from tidegate.runtime.batch_loop.preflight import check_surroundings
from tidegate.runtime.batch_loop.table_stream_alignment import readers_of
from tidegate.runtime.configuration.application import Application, config_hash, config_of
from tidegate.runtime.configuration.changes import Change, as_kept, changes_since
from tidegate.runtime.environment import REAL, Environment
from tidegate.runtime.kafka.client import PROBE_TIMEOUT_S, client
from tidegate.runtime.telemetry.driver_status import one_line
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.earlier_batches import has_version
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake

KEPT = (
    "windows: this log continues without windows in its keys, so that a record of one window replaces another's; give "
    "the operator a new name to keep windows apart, or set windows: none to reject such records, or windows: ignore to "
    "leave it as it is"
)


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Numbers of held records before and after a change.

    `held`: now. `released`: emitted by the change. `lost`: dropped without a result. `held_after`: held after it. Of a
    step of a pipeline, `released` is what enters the next step.
    """

    held: int = 0
    released: int = 0
    lost: int = 0
    held_after: int = 0

    def __add__(self, other: Forecast) -> Forecast:
        """Return the sum, for two partitions together."""
        return Forecast(**{name: number + getattr(other, name) for name, number in asdict(self).items()})


@dataclass(frozen=True, kw_only=True)
class ChangePreview:
    """The preview for one operator.

    `status`: `new` (no log yet), `same` (no change), `live` (all changes allowed), `refused` (a change is not), or
    `unknown` (the log does not have the previous configuration). `newest`: the log's newest batch, if `live`. `steps`:
    of a pipeline, the forecast of each step that holds state.
    """

    name: str
    status: str
    changes: tuple[Change, ...] = ()
    forecast: Forecast = Forecast()
    steps: Mapping[str, Forecast] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    newest: BatchMeta | None = None


def preview_change(application: Application, name: str, environment: Environment = REAL) -> ChangePreview:
    """Return the preview of the file's configuration for an operator, from the state in its log."""
    lake, wanted = environment.lake(application.lake / name), application.operators[name]
    log = LogVersion.at(lake, None) if has_version(lake, None) else None
    newest = None if log is None else log.newest()
    config = as_kept(newest, wanted)
    warnings = () if config == wanted else (KEPT,)
    if log is None or newest is None:
        return ChangePreview(name=name, status="new", warnings=_warnings(config, None))
    if newest.config == config_hash(config):
        return ChangePreview(name=name, status="same", warnings=warnings)
    if not newest.settings:
        return ChangePreview(name=name, status="unknown", warnings=_warnings(config, None))
    found = tuple(changes_since(newest, config))
    if any(change.refused for change in found):
        return ChangePreview(name=name, status="refused", changes=found, warnings=warnings)
    partitions = list(_partitions(application, name, log, newest, config, environment))
    return ChangePreview(
        name=name,
        status="live",
        changes=found,
        forecast=sum((whole for whole, _ in partitions), Forecast()),
        steps=_summed(steps for _, steps in partitions),
        warnings=warnings + _warnings(config, config_of(newest.settings)),
        newest=newest,
    )


def checked_preview(application: Application, name: str) -> ChangePreview:
    """Return the preview as `preview_change` does. Refuse the change if topics or functions that it needs are missing;
    add a warning if Kafka does not answer.
    """
    found = preview_change(application, name)
    if found.newest is None:
        return found
    kafka = client(application.kafka)
    try:
        kafka.probe(PROBE_TIMEOUT_S)
        check_surroundings(kafka, found.newest, application.operators[found.name])
    except Unavailable as error:
        return replace(found, warnings=(*found.warnings, f"its topics could not be checked: {one_line(error)}"))
    except TidegateError as error:
        return replace(found, status="refused", warnings=(one_line(error),))
    return found


def as_logs_go_on(application: Application) -> Application:
    """Return the application with the configurations under which the operators' logs would continue."""
    for name, config in application.operators.items():
        lake = open_lake(application.lake / name)
        if has_version(lake, None):
            kept = as_kept(LogVersion.at(lake, None).newest(), config)
            application = application.with_operator(name, kept)
    return application


def _warnings(config: OperatorConfig, before: OperatorConfig | None) -> tuple[str, ...]:
    warnings = []
    if getattr(config, "timer", None) == "last_update":
        warnings.append("timer: last_update holds a key for ever if it is updated more often than the time limit")
    kept = 0 if before is None else _history_kept(before)
    if 0 < kept < _history_kept(config):
        warnings.append(
            f"history_retention: versions older than {format_duration_ms(kept)} have been dropped already; lookups and "
            "late writes before them find gaps until stream time has advanced by the new retention"
        )
    return tuple(warnings)


def _history_kept(config: OperatorConfig) -> int:
    """Return how long a table keeps versions, in ms; 0 if it keeps none or is no table."""
    table = config.as_table()
    return 0 if table is None else table.history_retention or 0


def _partitions(
    application: Application,
    name: str,
    log: LogVersion,
    newest: BatchMeta,
    config: OperatorConfig,
    environment: Environment,
) -> Iterator[tuple[Forecast, dict[str, Forecast]]]:
    """Yield the forecast of each partition that holds records, and of a pipeline that of each step."""
    now = environment.clock.now_ms()
    holds = readers_of(application, name, log.lake).held(newest, newest.partitions, now)[1]
    for partition, known in sorted(newest.partitions.items()):
        if known.totals.held:
            state = committed_state(log, newest, partition, config)
            if partition in holds:
                cast(ReadTable, state).hold(*holds[partition])
            for table in newest.inputs.keys() & {read.table for read in config.reads()}:
                pin, lake = newest.inputs[table], environment.lake
                pinned = table_state(application, table, pin, partition, lake, prefer_longer_history=True)
                cast(TableReader, state).read_table(pinned, name=table)
            step = state.step(Records.from_rows([]), now)
            steps = {
                each: _forecast(known.measured.get(f"{each}.held_now", 0), counts.emitted, counts.held)
                for each, counts in step.ledger.items()
                if f"{each}.held_now" in step.measures  # others are stateless
            }
            whole = _forecast(known.totals.held, step.emissions.num_rows, step.counts.held)
            yield replace(whole, lost=sum(each.lost for each in steps.values())) if step.ledger else whole, steps


def _forecast(held: int, released: int, held_after: int) -> Forecast:
    return Forecast(held=held, released=released, lost=max(0, held - released - held_after), held_after=held_after)


def _summed(partitions: Iterable[Mapping[str, Forecast]]) -> dict[str, Forecast]:
    found: dict[str, Forecast] = {}
    for steps in partitions:
        found |= {name: forecast + found.get(name, Forecast()) for name, forecast in steps.items()}
    return found


def table_state(
    application: Application,
    name: str,
    pin: Pin,
    partition: int,
    lake: Callable[[Place], Lake] = open_lake,
    *,
    prefer_longer_history: bool = False,
) -> OperatorState:
    """Return the table's partition at the pin, under the configuration in effect at the time.

    `prefer_longer_history`: use the file's configuration if it keeps versions for longer: such a table changes before
    its readers.
    """
    log, config = LogVersion.at(lake(application.lake / name), pin.version), application.operators[name]
    newest = log.newest()
    assert newest is not None, f"{name} has no batch at version {pin.version}"
    if newest.settings and not (
        prefer_longer_history and _history_kept(config) > _history_kept(config_of(newest.settings))
    ):
        config = config_of(newest.settings)
    return committed_state(log, newest, partition, config)


def committed_state(log: LogVersion, newest: BatchMeta, partition: int, config: OperatorConfig) -> OperatorState:
    """Return the partition's committed state, opened under this configuration."""
    operator, known = operator_for(config), newest.partitions[partition]
    state = operator.open(MemoryStorage(operator.layout))
    state.restore(log.read("state", partition), known.stream_time)
    if known.floor is not None:
        cast(ReadTable, state).hold(known.floor, known.floor)
    return state
