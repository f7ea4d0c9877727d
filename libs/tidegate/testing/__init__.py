"""Tests over all kinds: conformance runner, replay of a log, simulation; and the face of the per-record driver.

`check_batch_function` checks a function of your own: what it makes of a row must depend on that row alone.
`check_merge_function` checks one that merges values: it must not matter which of them are merged first.
"""

from tidegate.testing.batch_functions import check_batch_function
from tidegate.testing.merge_functions import check_merge_function

__all__ = ["check_batch_function", "check_merge_function"]
