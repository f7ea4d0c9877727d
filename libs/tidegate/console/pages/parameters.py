"""Numbers in addresses, with their bounds."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

Partition = Annotated[int | None, Query(ge=0, lt=2**31)]
BatchNumber = Annotated[int | None, Query(ge=0, lt=2**62)]
