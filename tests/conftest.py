"""What the tests of a process share: one broker with topics for each test, one Spark session, the servers of lakes."""

from __future__ import annotations

import gc
import itertools
import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import hypothesis_profile, quick_java  # noqa: F401
from tests.lake import azure_server, s3_server
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.install import paths
from tidegate.runtime.kafka.topics import create_topic
from tidegate.runtime.spark.session import open_session
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
    """A real S3 server with an empty bucket, whose keys are in the environment."""
    with s3_server.running(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[azure_server.AzureServer]:
    """The emulator of Azure's blob storage with an empty container; the environment has its address and account."""
    with azure_server.running(tmp_path_factory.mktemp("azure")) as server:
        os.environ |= server.environment
        yield server


def pytest_configure() -> None:
    """Every process that tests start has the keys of the S3 server: also a Spark session from before the server."""
    os.environ.update(s3_server.LOGIN)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--lake s3` or `azure` runs tests that take `new_lake` with their lakes in such a store instead of in folders."""
    parser.addoption("--lake", choices=("folder", "s3", "azure"), default="folder", help="where tests have their lakes")


NewLake = Callable[[Path], Place]


@pytest.fixture(scope="session")
def new_lake(request: pytest.FixtureRequest) -> NewLake:
    """`new_lake(folder)`: the lake that stands for the folder: the folder itself, or with `--lake` one in a store."""
    kind = request.config.getoption("--lake")
    if kind == "folder":
        return Place.of
    server, numbers = request.getfixturevalue(kind), itertools.count()
    return cache(lambda _: server.place(f"lake-{os.getpid()}-{next(numbers)}"))


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """One Spark session for all tests of a process, which reads folders and S3."""
    if request.config.getoption("--lake") == "azure":
        request.getfixturevalue("azure")  # the processes that Spark starts take over the environment
    with open_session("tests", "local[2]", lake=Place.of("s3://any")) as session:
        yield session


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands give up on a broker that is not there within a tenth of a second instead of five."""
    for module in ("kafka.inspection", "doctor.status", "doctor.explanation.recomputation"):
        monkeypatch.setattr(f"tidegate.runtime.{module}.PROBE_TIMEOUT_S", 0.1)


LONGEST = (
    "simulation/test_simulation",
    "end_to_end/test_commands",
    "runtime/stream/test_how_to",
    "docs/test_how_tos",
    "application/test_programs",
    "runtime/stream/test_two_streams",
    "bad_days/test_marks",
    "bad_days/test_brokers",
    "docs/test_operator_pages",
    "end_to_end/test_rescale",
    "clusters/test_clusters",
    "console/test_views_in_spark",
    "docs/test_tutorial",
    "lake/test_operators",
    "laws/test_laws_on_delta",
    "runtime/stream/test_joined_streams",
    "runtime/stream/test_chains",
    "kill/test_joins",
    "kill/test_deduplicate",
    "kill/test_short",
    "runtime/stream/test_data_source",
    "runtime/stream/test_typed_views",
    "end_to_end/readers/test_log_readers",
    "end_to_end/readers/test_history_readers",
    "operators/testing/test_recorded_scenarios",
    "application/test_pipeline_programs",
    "end_to_end/test_telemetry",
    "packaging/test_wheel",
    "application/test_how_to_batch_functions",
    "end_to_end/readers/test_table_views",
    "runtime/stream/test_stream",
    "end_to_end/test_apply",
)
"""The files that take longest, in that order: whoever runs several files at once begins with them."""


LACKING = {
    "folder": ("azure",),
    "s3": ("azure", "folder_lake"),
    "azure": ("folder_lake", "spark_reads"),
}
"""The markers of tests that cannot have their lake there."""


ALL_FAST = re.compile(r"^pytestmark = .*\bpytest\.mark\.fast\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file whose tests are all fast is not imported where fast tests are left out: that takes seconds a process."""
    if not config.getoption("markexpr").startswith("not fast and ") or not collection_path.match("test_*.py"):
        return None
    return ALL_FAST.search(collection_path.read_text()) is not None or None


def pytest_collection_finish() -> None:
    """Modules and tests live until the end: no collection of garbage looks through them again."""
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The fast tests run first, then the files that take long; otherwise the order stays.

    With `--lake`, tests that need their lake in a folder, or a reader that this store lacks, are left out.
    """
    without = LACKING[config.getoption("--lake")]
    left_out = [item for item in items if any(item.get_closest_marker(name) is not None for name in without)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: (item.get_closest_marker("fast") is None, _place(item.nodeid)))


def _place(test: str) -> int:
    return next((at for at, name in enumerate(LONGEST) if test.startswith(f"tests/{name}.")), len(LONGEST))
