"""The telemetry of one process: observes its drivers, counts their batches, and serves both over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.telemetry.collector import ServiceCollector
from tidegate.runtime.telemetry.endpoint import Answer, endpoint, json_answer
from tidegate.runtime.telemetry.health import health, readiness
from tidegate.runtime.telemetry.observation import Observation, Observed
from tidegate.runtime.telemetry.service_metrics import ServiceMetrics


class Telemetry:
    """The telemetry of one process. A process without drivers is healthy but not ready."""

    def __init__(self, application: Application) -> None:
        self._figures = ServiceMetrics()
        self._drivers: Sequence[Observed] = ()
        self._trigger_s = application.longest_pause_s
        self._registry = CollectorRegistry()
        self._registry.register(ServiceCollector(application.application, self._figures, self._observe))

    def watch(self, drivers: Sequence[Observed]) -> None:
        """Set the drivers to observe."""
        self._drivers = drivers

    def note(self, meta: BatchMeta, seconds: dict[str, float]) -> None:
        """Note the batch, to be counted later. `seconds`: the durations of its phases, by name."""
        self._figures.note(meta, seconds)

    def metrics(self, accept: str) -> Answer:
        """Return every metric, in the exposition format that the client prefers (its `Accept` header)."""
        encode, kind = choose_encoder(accept)
        return Answer(HTTPStatus.OK, kind, encode(self._registry))

    def healthz(self, _accept: str) -> Answer:
        """Return 200 while no driver has failed and no driver loop is stuck; 503 otherwise."""
        result = health(self._observe(), self._trigger_s)
        return json_answer(result, well=result["healthy"])

    def readyz(self, _accept: str) -> Answer:
        """Return 200 while every operator is processing; 503 with the reasons otherwise."""
        result = readiness(self._observe())
        return json_answer(result, well=result["ready"])

    def _observe(self) -> list[Observation]:
        return [driver.observe() for driver in self._drivers]


@contextmanager
def telemetry_of(application: Application) -> Iterator[Telemetry | None]:
    """Serve the telemetry of this process during the block; yield None if none is configured."""
    telemetry, place = Telemetry(application), application.telemetry
    if place is None:
        yield None
        return
    routes = {"/metrics": telemetry.metrics, "/healthz": telemetry.healthz, "/readyz": telemetry.readyz}
    with endpoint(place.host, place.port, routes):
        yield telemetry
