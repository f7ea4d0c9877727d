"""The process that does what takes long beside a worker; the worker starts it when it is needed first."""

from __future__ import annotations

from tidegate.runtime.workers.resident import work_beside

if __name__ == "__main__":
    work_beside()
