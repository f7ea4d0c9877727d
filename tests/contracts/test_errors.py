"""Errors have a problem, a value and a remedy, and can be sent between processes."""

import pickle

import pytest

from tidegate.contracts.errors import BufferFull, ConfigurationError, Fenced, Problem, UserError

pytestmark = pytest.mark.fast


def test_an_error_has_problem_value_and_remedy():
    text = str(UserError("the port is taken", value=9092, remedy="choose another with --port"))
    assert text.splitlines() == ["the port is taken", "  value:  9092", "  remedy: choose another with --port"]


def test_an_error_keeps_its_type_and_parts_between_processes():
    error = pickle.loads(pickle.dumps(Fenced("a newer driver", value=3, remedy="stop")))
    assert (type(error), error.problem, error.value, error.remedy) == (Fenced, "a newer driver", 3, "stop")


def test_a_configuration_error_lists_every_problem():
    problems = [Problem(where=f"operators.{i}", value=i, cause="bad", remedy="mend") for i in range(3)]
    error = pickle.loads(pickle.dumps(ConfigurationError(problems)))
    assert error.problems == tuple(problems)
    assert all(f"operators.{i}" in str(error) for i in range(3))


@pytest.mark.parametrize(
    ("limit", "remedy"),
    [
        (
            "buffer.max_keys",
            "raise buffer.max_keys, or change buffer.when_full; the operator continues there",
        ),
        ("window.max_length", "raise window.max_length; the operator continues there"),
    ],
)
def test_a_stop_at_a_limit_names_the_limit_to_raise(limit, remedy):
    full = pickle.loads(pickle.dumps(BufferFull.before("offset 7 of partition 2", "sessions", limit)))
    assert (full.problem, full.value, full.remedy) == (
        "sessions stopped before offset 7 of partition 2",
        f"{limit} is reached",
        remedy,
    )
