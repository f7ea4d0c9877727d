"""The telemetry of one process: its drivers are seen, their batches noted, and HTTP tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from tidegate.contracts.schema import BatchMeta
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.telemetry.collector import ServiceCollector
from tidegate.runtime.telemetry.endpoint import Answer, endpoint, json_answer
from tidegate.runtime.telemetry.figures import Figures
from tidegate.runtime.telemetry.health import health, readiness
from tidegate.runtime.telemetry.observation import Observation, Observed


class Telemetry:
    """What a process tells of itself; without drivers it is alive and not ready."""

    def __init__(self, application: Application) -> None:
        self._figures = Figures()
        self._drivers: Sequence[Observed] = ()
        self._trigger_s = application.trigger / 1_000
        self._registry = CollectorRegistry()
        self._registry.register(ServiceCollector(application.application, self._figures, self._seen))

    def watch(self, drivers: Sequence[Observed]) -> None:
        """These are the drivers of the process."""
        self._drivers = drivers

    def note(self, meta: BatchMeta, seconds: dict[str, float]) -> None:
        """The batch, whose parts took so long, will be counted."""
        self._figures.note(meta, seconds)

    def metrics(self, accept: str) -> Answer:
        """Every metric, in the format that the client prefers."""
        encode, kind = choose_encoder(accept)
        return Answer(HTTPStatus.OK, kind, encode(self._registry))

    def healthz(self, _accept: str) -> Answer:
        """200 while the process lives and its loops turn."""
        said = health(self._seen(), self._trigger_s)
        return json_answer(said, well=said["healthy"])

    def readyz(self, _accept: str) -> Answer:
        """200 while every operator processes; 503 with the reason otherwise."""
        said = readiness(self._seen())
        return json_answer(said, well=said["ready"])

    def _seen(self) -> list[Observation]:
        return [driver.observe() for driver in self._drivers]


@contextmanager
def telemetry_of(application: Application) -> Iterator[Telemetry | None]:
    """The telemetry of this process, while its endpoint answers; None: the file asks for none."""
    told, place = Telemetry(application), application.telemetry
    if place is None:
        yield None
        return
    routes = {"/metrics": told.metrics, "/healthz": told.healthz, "/readyz": told.readyz}
    with endpoint(place.host, place.port, routes):
        yield told
