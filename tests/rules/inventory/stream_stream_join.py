"""The operator `stream_stream_join`: which records are partners, which are late, and when a record leaves alone."""

from tests.rules.removals import condition, deleted, value
from tests.rules.rule import Chapter, Rule, tests

_RULES = "operators/stream_stream_join/test_rules"

RULES = (
    Rule(
        slug="unaccepted-joins-nothing",
        name="late and rejected records are neither joined nor held, and do not move stream time",
        chapter=Chapter.STREAM_STREAM_JOIN,
        tests=tests(_RULES, "a_record_without_a_value_is_rejected_and_moves_no_time"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="partners-in-window",
        name="a right record is the partner of a left one at most `before` earlier and `after` later",
        chapter=Chapter.STREAM_STREAM_JOIN,
        tests=tests(_RULES, "records_of_both_streams_are_joined_within_before_and_after"),
        removals=(value("timestamp - rules.ahead[side], timestamp + rules.back[side]"),),
    ),
    Rule(
        slug="late-after-own-window",
        name="a record whose own window is closed is late",
        chapter=Chapter.STREAM_STREAM_JOIN,
        tests=tests(_RULES, "a_record_is_late_once_its_own_window_is_closed"),
        removals=(value("ACCEPTED"),),
    ),
    Rule(
        slug="closed-before-joined",
        name="the windows that a record closes are dealt with before the record is joined",
        chapter=Chapter.STREAM_STREAM_JOIN,
        tests=tests(_RULES, "a_record_that_left_alone_is_not_joined_any_more"),
        removals=(deleted(),),
    ),
    Rule(
        slug="closed-when-passed",
        name="a record without a partner leaves when stream time has passed the end of its window and the grace",
        chapter=Chapter.STREAM_STREAM_JOIN,
        tests=tests(_RULES, "a_record_without_a_partner_leaves_alone_once_time_has_passed_its_window_and_the_grace"),
        removals=(condition("state.time.numbers[HELD] > 0 and state.time.place[0] <= stream_time"),),
    ),
    Rule(
        slug="partner-ends-waiting",
        name="a record that found a partner does not leave without one",
        chapter=Chapter.STREAM_STREAM_JOIN,
        tests=tests(_RULES, "a_record_that_found_a_partner_does_not_leave_alone"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="held-while-found",
        name="a record is held as long as one that is not late may find it",
        chapter=Chapter.STREAM_STREAM_JOIN,
        tests=tests(_RULES, "a_record_is_held_as_long_as_one_that_is_not_late_can_find_it"),
        removals=(value("timestamp + rules.open_for[side]"),),
    ),
)
