"""How many examples a property is tested with: 50; the laws 200 with `HYPOTHESIS_PROFILE=full`, as in `make test`,
2,000 with `HYPOTHESIS_PROFILE=laws`, as in `make laws`, and 20 with `HYPOTHESIS_PROFILE=few`, as in `make checked`.

No deadline: the first example may compile a kernel.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dev")

many = settings(max_examples={"few": 20, "full": 200, "laws": 2_000}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 50))
"""For the laws."""
