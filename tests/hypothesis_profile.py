"""How many examples a property is tested with: 50. The laws have 25, so that `make test-fast` is fast; 100 with
`HYPOTHESIS_PROFILE=full`, as in `make test`; 2,000 with `laws`, as in `make laws`; 20 with `few`, as in `make checked`.

`make test` and `make checked` play the same examples on each run, so that a failure tells of the change that was made;
`make test-fast` and `make laws` draw new ones. No deadline: the first example may compile a kernel.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "")

settings.register_profile(
    "tests",
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=_PROFILE in ("few", "full"),
)
settings.load_profile("tests")

many = settings(max_examples={"few": 20, "full": 100, "laws": 2_000}.get(_PROFILE, 25))
"""For the laws."""
