"""A deterministic simulation of a whole service in one process, with faults drawn from a seed.

The real driver, tasks, decisions, operator log and local state run; broker, lake, disk, Spark and time are simulated.
`simulate(Settings.drawn(7))` plays seed 7; `python -m tidegate.testing.simulation` plays thousands.
"""

from tidegate.testing.simulation.play import Report, simulate
from tidegate.testing.simulation.settings import Settings

__all__ = ["Report", "Settings", "simulate"]
