"""The operator `deduplicate`: what is a duplicate, what is late, and how long a first record is remembered."""

from tests.rules.removals import condition, dropped, value
from tests.rules.rule import Chapter, Rule, tests

_CONFIG, _RULES = "operators/deduplicate/test_config", "operators/deduplicate/test_rules"

RULES = (
    Rule(
        slug="unaccepted-changes-nothing",
        name="late and rejected records are neither emitted nor remembered, and do not move stream time",
        chapter=Chapter.DEDUPLICATE,
        tests=tests(_RULES, "a_late_record_does_not_move_stream_time_and_is_not_remembered"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="duplicates-dropped",
        name="a duplicate is not emitted",
        chapter=Chapter.DEDUPLICATE,
        tests=tests(_RULES, "a_duplicate_is_not_emitted"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="duplicates-within",
        name="records of a key are duplicates if they are less than `within` apart",
        chapter=Chapter.DEDUPLICATE,
        tests=tests(_RULES, "records_of_a_key_that_are_within_apart_are_both_emitted"),
        removals=(dropped("apart < within"),),
    ),
    Rule(
        slug="late-beyond-grace",
        name="a record further than the grace behind stream time is late",
        chapter=Chapter.DEDUPLICATE,
        tests=tests(_RULES, "a_record_beyond_the_grace_is_late_even_if_its_key_is_new"),
        removals=(value("ACCEPTED"),),
    ),
    Rule(
        slug="remembered-while-accepted",
        name="a first record is remembered until all its duplicates would be late, and no longer",
        chapter=Chapter.DEDUPLICATE,
        tests=tests(
            _RULES,
            "a_first_record_is_remembered_until_no_duplicate_of_it_is_accepted",
            "a_first_record_is_forgotten_once_all_its_duplicates_would_be_late",
        ),
        removals=(value("stream_time - rules.grace"), value("NEVER")),
    ),
    Rule(
        slug="stop-before-bound",
        name="`shut_down` stops before the key that would exceed a bound",
        chapter=Chapter.DEDUPLICATE,
        tests=tests(_RULES, "it_stops_before_the_key_that_would_exceed_a_bound"),
        removals=(condition("False", way="keys"), value("DONE", way="bytes")),
    ),
    Rule(
        slug="expired-make-room",
        name="first records that expire because of the new record do not count for the bounds",
        chapter=Chapter.DEDUPLICATE,
        tests=tests(_RULES, "what_a_record_lets_expire_makes_room_for_it"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="expiry-has-grace",
        name="a duration in `within` requires a grace, and `forever` refuses it",
        chapter=Chapter.DEDUPLICATE,
        tests=tests(_CONFIG, "unsound_combinations_are_refused_with_their_cause"),
        removals=(condition("False", way="time"), condition("False", way="forever")),
    ),
    Rule(
        slug="not-remembered-longer",
        name="a change of configuration never remembers keys longer than before",
        chapter=Chapter.DEDUPLICATE,
        tests=tests(_CONFIG, "the_time_for_which_keys_are_remembered_cannot_grow"),
        removals=(condition("True"),),
    ),
)
