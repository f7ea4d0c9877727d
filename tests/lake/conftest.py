"""What tests of lakes in a bucket share: the proxy that makes faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lake.fault_proxy import FaultProxy, in_front_of
from tests.lake.s3_server import S3Server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    """A proxy in front of the S3 server, through which all passes as long as the test says nothing else."""
    with in_front_of(s3) as made:
        yield made
