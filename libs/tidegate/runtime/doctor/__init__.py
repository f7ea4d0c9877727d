"""Diagnoses an application's environment: what is wrong with it, and how to fix it.

`diagnosis` runs all checks. The other modules collect facts in thin `collect` functions and judge them in small checks,
which are pure.
"""
