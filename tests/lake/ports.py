"""Ports of the servers that tests start."""

from __future__ import annotations

import random
import socket
import subprocess
import time

_PORTS = range(20_000, 30_000)  # below those of outgoing connections, one of which could take the port first
_START_TIMEOUT_S = 60.0


def free_port() -> int:
    """A port that is probably free: whoever starts a server there tries another one if it is not."""
    return random.SystemRandom().choice(_PORTS)


def answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the server accepts connections; False if it ends before, as when another program has the port."""
    give_up = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < give_up:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            time.sleep(0.1)
            return process.poll() is None
    return False
