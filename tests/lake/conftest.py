"""What tests of lakes in a bucket share: a Spark session that can read it, and the proxy that makes faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lake.fault_proxy import FaultProxy, in_front_of
from tests.lake.s3_server import S3Server
from tidegate.runtime.spark.session import start_session


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    """A proxy in front of the S3 server, through which all passes as long as the test says nothing else."""
    with in_front_of(s3) as made:
        yield made


@pytest.fixture(scope="module")
def spark(s3: S3Server) -> Iterator[Any]:
    """A Spark session that can read the server's bucket."""
    session = start_session("tests", "local[2]", lake=s3.place("any"))
    yield session
    session.stop()
