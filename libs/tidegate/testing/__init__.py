"""Tests over all kinds: conformance runner, replay of a log, simulation; and the face of the per-record driver.

`check_batch_function` checks a function of your own: what it makes of a row must depend on that row alone.
"""

from tidegate.testing.batch_functions import check_batch_function

__all__ = ["check_batch_function"]
