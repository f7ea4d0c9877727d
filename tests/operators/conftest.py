"""Loads the profile of the property tests."""

from tests import hypothesis_profile  # noqa: F401
