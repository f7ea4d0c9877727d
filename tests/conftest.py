"""What tests share: one embedded broker a session, and topics of their own."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import hypothesis_profile, quick_java  # noqa: F401
from tests.lake import s3_server
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.install import paths
from tidegate.runtime.kafka.topics import create_topic
from tidegate.state.lake.place import Place

quick_java.use()
gc.set_threshold(50_000, 20, 20)  # tests leave little behind: to look for it as often as usual takes 5 % of their time

NewTopic = Callable[..., str]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """An embedded broker on free ports, with an empty data folder."""
    with Broker.start(tmp_path_factory.mktemp("broker"), paths.jars("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def topic(broker: Broker) -> NewTopic:
    """`topic(partitions=1, max_message_bytes="1000")` creates a topic and gives its name, which no other test has."""
    numbers = itertools.count()
    options = {"bootstrap.servers": broker.bootstrap}

    def create(partitions: int = 1, **configs: str) -> str:
        name = f"topic-{os.getpid()}-{next(numbers)}"
        create_topic(options, name, partitions, {key.replace("_", "."): value for key, value in configs.items()})
        return name

    return create


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3_server.S3Server]:
    """A real S3 server with an empty bucket; the environment has its access keys."""
    os.environ |= s3_server.LOGIN
    with s3_server.running(tmp_path_factory.mktemp("s3")) as server:
        yield server


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--lake s3` runs tests that take `new_lake` with their lakes in the S3 server instead of in folders."""
    parser.addoption("--lake", choices=("folder", "s3"), default="folder", help="where tests have their lakes")


NewLake = Callable[[Path], Place]


@pytest.fixture(scope="session")
def new_lake(request: pytest.FixtureRequest) -> NewLake:
    """`new_lake(folder)`: a lake that no other test has: the folder, or with `--lake s3` one in the S3 server."""
    if request.config.getoption("--lake") == "folder":
        return Place.of
    server, numbers = request.getfixturevalue("s3"), itertools.count()
    return lambda _: server.place(f"lake-{os.getpid()}-{next(numbers)}")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands give up on a broker that is not there within a tenth of a second instead of five."""
    for module in ("kafka.inspection", "doctor.status"):
        monkeypatch.setattr(f"tidegate.runtime.{module}.PROBE_TIMEOUT_S", 0.1)


LONGEST = (
    "simulation/test_simulation",
    "bad_days/test_marks",
    "packaging/test_wheel",
    "clusters/test_clusters",
    "docs/test_tutorial",
    "docs/test_how_tos",
    "laws/test_laws_on_delta",
    "runtime/stream/test_how_to",
    "lake/test_operators",
    "end_to_end/readers/test_log_readers",
    "kill/test_joins",
    "docs/test_operator_pages",
    "kill/test_deduplicate",
    "end_to_end/readers/test_history_readers",
    "bad_days/test_brokers",
    "end_to_end/test_joins",
    "kill/test_short",
    "end_to_end/test_commands",
    "end_to_end/test_telemetry",
    "runtime/stream/test_stream",
    "end_to_end/readers/test_table_views",
    "end_to_end/test_apply",
    "runtime/stream/test_laws_on_streams",
    "end_to_end/readers/test_readers",
    "end_to_end/test_windows",
)
"""The files that take longest, in that order: whoever runs several files at once begins with them."""


def pytest_collection_finish() -> None:
    """Modules and tests live until the end: no collection of garbage looks through them again."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The fast tests run first, then the files that take long; otherwise the order stays."""
    items.sort(key=lambda item: (item.get_closest_marker("fast") is None, _place(item.nodeid)))


def _place(test: str) -> int:
    return next((at for at, name in enumerate(LONGEST) if test.startswith(f"tests/{name}.")), len(LONGEST))
