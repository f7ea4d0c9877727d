"""The test driver for users' tests: one partition of an operator, record by record, without Kafka, Spark or a lake."""

from __future__ import annotations

from tidegate.operators.testing.driver import Driver, Emission

__all__ = ["Driver", "Emission"]
