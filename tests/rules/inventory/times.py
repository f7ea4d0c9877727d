"""What times a batch takes, and what is closed for good."""

from tests.rules.removals import condition, replaced, value
from tests.rules.rule import Chapter, Rule, tests

_REFUSALS, _SUPPRESSION, _WINDOWS = (
    "operators/late_and_rejected",
    "operators/suppression/step",
    "operators/windowed_aggregation/step",
)

RULES = (
    Rule(
        slug="time-range",
        name="a record outside of the range of time is rejected",
        chapter=Chapter.BATCH,
        tests=tests(
            "operators/test_range_of_time", "a_record_beyond_the_range_is_rejected_by_every_operator_and_moves_no_time"
        ),
        removals=(condition("True"),),
    ),
    Rule(
        slug="idle-time-range",
        name="no idle advance moves stream time beyond the range",
        chapter=Chapter.BATCH,
        tests=tests("operators/test_range_of_time", "an_idle_advance_stays_within_the_range_of_time"),
        removals=(replaced("min(to, MAX_TIME)", "to"),),
    ),
    Rule(
        slug="lateness-not-negative",
        name="a late record that is ahead of stream time has lateness 0",
        chapter=Chapter.BATCH,
        tests=tests(
            "operators/test_lateness",
            "a_record_of_a_flushed_window_that_is_ahead_of_stream_time_has_lateness_0_and_its_cause_says_so",
        ),
        removals=(replaced("np.maximum(behind, 0)", "behind"),),
    ),
    Rule(
        slug="flushed-window-closed",
        name="a window that a flush has closed accepts no record",
        chapter=Chapter.BATCH,
        tests=tests(
            "operators/suppression/test_closed_windows",
            "a_flushed_window_never_accepts_a_record_again",
        ),
        removals=(
            condition("False", way="absorb"),
            value("state.time.arrival[slot]", way="close"),
        ),
    ),
    Rule(
        slug="flushed-session-closed",
        name="a session that a flush has closed accepts no record",
        chapter=Chapter.BATCH,
        tests=tests(
            "operators/windowed_aggregation/test_closed_sessions",
            "a_record_that_touches_a_flushed_session_alone_is_late",
        ),
        removals=(replaced("first < last or not _touches_closed(state, key, timestamp, late_until, rules)", "True"),),
    ),
)
