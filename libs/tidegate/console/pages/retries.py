"""Pages are read again if a clean-up deletes files of the version of a log that is being read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from tidegate.contracts.errors import StateError

TRIES = 3
"""How often a page is read at most. A log that is damaged fails each time."""


class ReadAgain(APIRoute):
    """A route whose page is read again if a file of a log is missing: logs are then opened at newer versions."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request. Pages that change something are asked for once."""
        answer = super().get_route_handler()

        async def answered(request: Request) -> Response:
            for _ in range(TRIES - 1 if request.method == "GET" else 0):
                try:
                    return await answer(request)
                except StateError:
                    continue
            return await answer(request)

        return answered
