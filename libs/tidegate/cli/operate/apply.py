"""`tidegate apply`: apply a changed configuration file to operators that keep their state."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from tidegate.application.target import load
from tidegate.cli.driver_client import DRIVER_TIMEOUT_S, carry_out, takeover_option, watch_driver
from tidegate.cli.operate.plan import REFUSED, previews_of, show_previews
from tidegate.cli.shared import json_option, show, wants_json
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.errors import EngineError
from tidegate.contracts.event_time import parse_duration_ms
from tidegate.runtime.configuration.application import Application, config_hash, settings_of
from tidegate.runtime.doctor.change_preview import ChangePreview, as_logs_go_on
from tidegate.runtime.telemetry.driver_status import DriverStatusFile
from tidegate.state import earlier_batches
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.lake.opening import open_lake
from tidegate.state.lease_decisions import Life

POLL_S = 0.1


@click.command("apply")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--operator", help="Only this operator.")
@takeover_option
@json_option
def command(file: Path, operator: str | None, takeover: bool) -> None:
    """Apply the changes in FILE to its operators, between two batches; they keep their state. Preview them with `plan`.

    A running driver, on whichever machine, applies the change itself; if none is running, this command does it. If any
    change is refused, no change is applied.

    Example: tidegate apply flights.yaml
    """
    application = as_logs_go_on(load(file))
    previews = previews_of(application, operator)
    if any(found.status == "refused" for found in previews):
        show_previews(previews)
        raise click.exceptions.Exit(REFUSED)
    for found in sorted(previews, key=apply_order):
        if found.status == "live":
            _show(found.name, *_apply(application, found.name, takeover=takeover))
        elif not wants_json():
            click.echo(f"{found.name}: nothing to apply ({found.status})")


def apply_order(found: ChangePreview) -> int:
    """Return the sort key that orders a change in table retention against the changes of the table's readers.

    A table that will keep more history comes before its readers (-1), one that will keep less comes after them (1).
    """
    for change in found.changes:
        if change.option == "history_retention" and change.before and change.after:
            return 1 if parse_duration_ms(change.after) < parse_duration_ms(change.before) else -1
    return 0


def _apply(application: Application, name: str, *, takeover: bool) -> tuple[str, BatchMeta | None]:
    """Apply the configuration. Return who did it, and the batch that applied it to the held records.

    The batch is None if nothing was held.
    """
    config = application.operators[name]
    before = _log(application, name).newest()
    done_by = carry_out("apply", application, name, json.dumps(settings_of(config)), takeover=takeover)
    log = _until_applied(application, name)
    metas = earlier_batches.metas(log, -1 if before is None else before.batch)
    return done_by, next((meta for meta in metas if meta.action == "apply"), None)


def _until_applied(application: Application, name: str) -> LogVersion:
    """Wait until the log shows that the configuration is in force, and return the log.

    Raise EngineError if the driver ends first or if it takes longer than `DRIVER_TIMEOUT_S`.
    """
    wanted, deadline = config_hash(application.operators[name]), time.monotonic() + DRIVER_TIMEOUT_S
    watch = watch_driver(application, name)
    while True:
        # before the log is read: a driver may apply the change and then end
        driven = watch.look() not in (Life.NONE, Life.GONE)
        log = _log(application, name)
        newest = log.newest()
        if newest is not None and newest.config == newest.applied == wanted:
            return log
        if not driven or time.monotonic() > deadline:
            raise EngineError(
                f"{name} does not use the new configuration yet",
                value=f"after {DRIVER_TIMEOUT_S:.0f} s" if driven else _end_of_driver(application, name),
                remedy="see `tidegate status` and the log of the service",
            )
        time.sleep(POLL_S)


def _end_of_driver(application: Application, name: str) -> str:
    result = DriverStatusFile(application.state / application.application / name).read()
    return "its driver has ended" + (f": {result.why}" if result is not None and result.why else "")


def _log(application: Application, name: str) -> LogVersion:
    return LogVersion.at(open_lake(application.lake / name), None)


def _show(name: str, done_by: str, applied: BatchMeta | None) -> None:
    released = 0 if applied is None else sum(change.counts.emitted for change in applied.changed.values())
    held = 0 if applied is None else sum(known.totals.held for known in applied.partitions.values())
    result = {"operator": name, "applied_by": done_by, "released": released, "held_after": held}
    show(result, f"{name}: applied the changed file, by {done_by}: {released:,} released, {held:,} held")
