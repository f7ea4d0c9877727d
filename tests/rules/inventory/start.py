"""The start of a driver, and going on after what is unclear."""

from tests.rules.removals import argument, condition, deleted, dropped, followed, preceded, replaced, value
from tests.rules.rule import Chapter, Rule, tests

_CLAIM, _PUBLICATION, _DRIVER = (
    "runtime/batch_loop/claim",
    "runtime/publishing/publication",
    "runtime/batch_loop/driver",
)
_STREAM = "runtime/stream/driver"

RULES = (
    Rule(
        slug="shared-lake",
        name="executors that do not share the lake are refused before the first batch",
        chapter=Chapter.START,
        tests=tests(
            "runtime/test_lake_probe",
            "an_executor_with_another_lake_is_refused_and_named",
            "a_driver_asks_once_before_its_first_batch",
        ),
        removals=(
            condition("False"),
            deleted(way="driver"),
        ),
    ),
    Rule(
        slug="no-log-anew",
        name="an operator that has run before never begins a new log by itself",
        chapter=Chapter.START,
        tests=(
            *tests(
                "runtime/test_earlier_runs",
                "an_operator_with_any_trace_waits_for_its_lake_and_goes_on_when_it_is_back",
            ),
            *tests(
                "stream/test_driver",
                "a_stream_that_has_run_before_never_begins_a_new_log_by_itself",
                "a_stream_whose_lake_goes_away_while_it_runs_makes_no_new_log",
            ),
        ),
        removals=(
            deleted(),
            value("False", way="claimed"),
        ),
    ),
    Rule(
        slug="claim-before-ids",
        name="a claim is committed before any transactional id is initialised",
        chapter=Chapter.START,
        tests=tests("runtime/test_claim", "a_claim_comes_first_then_initialising_then_marks_then_settling"),
        removals=(preceded("self._published_to(wanted)"),),
    ),
    Rule(
        slug="ids-before-marks",
        name="the transactional ids of all partitions are initialised before the marks are read",
        chapter=Chapter.START,
        tests=tests("runtime/test_claim", "a_claim_comes_first_then_initialising_then_marks_then_settling"),
        removals=(followed("break"),),
    ),
    Rule(
        slug="stable-marks",
        name="marks are read only when no transaction is about to change them",
        chapter=Chapter.START,
        tests=(
            *tests("runtime/test_transaction_protocols", "marks_are_asked_for_when_they_are_stable"),
            *tests("runtime/test_kafka_transactions", "a_mark_waits_for_the_transaction_that_is_about_to_change_it"),
        ),
        removals=(argument("require_stable", "False"),),
    ),
    Rule(
        slug="start-publishes",
        name="a start publishes what is committed and not published",
        chapter=Chapter.START,
        tests=tests("runtime/test_publication", "what_is_committed_above_the_mark_is_published_at_start"),
        removals=(deleted(),),
    ),
    Rule(
        slug="start-at-claim",
        name="a failing step of the start starts over at the claim",
        chapter=Chapter.START,
        tests=tests(
            "runtime/test_driver",
            "a_failing_step_of_the_start_starts_over_at_the_claim",
            "an_operator_that_cannot_be_opened_is_claimed_again",
        ),
        removals=(preceded("self._owned = operator"),),
    ),
    Rule(
        slug="init-after-unclear-end",
        name="after an unclear end the next request is InitProducerId",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/test_publication", "after_an_end_without_an_answer_the_next_request_is_init_producer_id"),
        removals=(deleted(),),
    ),
    Rule(
        slug="own-epoch",
        name="one's own id and epoch tell a timeout from a takeover",
        chapter=Chapter.UNCLEAR,
        tests=(
            *tests(
                "runtime/test_publication",
                "after_an_end_without_an_answer_the_next_request_is_init_producer_id",
                "a_takeover_is_told_by_one_s_own_id_and_epoch",
            ),
            *tests(
                "runtime/test_kafka_transactions",
                "a_takeover_fences_the_older_producer_whatever_it_does",
                "after_a_timeout_one_s_own_id_and_epoch_are_accepted",
            ),
        ),
        removals=(
            argument("producer_id", "_NO_PRODUCER", way="asked"),
            condition("False", way="fenced"),
        ),
    ),
    Rule(
        slug="takeover-at-start",
        name="an id is taken over at start only, after the claim",
        chapter=Chapter.UNCLEAR,
        tests=tests(
            "runtime/test_publication",
            "after_an_end_without_an_answer_the_next_request_is_init_producer_id",
            "an_abandoned_transaction_is_aborted_by_one_s_own_id_before_anything_else",
        ),
        removals=(replaced("self.producers[partition]", "None"),),
    ),
    Rule(
        slug="mark-after-timeout",
        name="after a timeout the mark is read, and what it lacks published again",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/test_publication", "an_end_that_was_not_carried_out_is_published_again"),
        removals=(deleted(),),
    ),
    Rule(
        slug="fenced-stops",
        name="a driver that was fenced reads the log: behind a higher epoch it stops",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/test_claim", "a_driver_that_was_overtaken_does_not_claim_again"),
        removals=(deleted(),),
    ),
    Rule(
        slug="fenced-starts-over",
        name="a driver that was fenced without a higher epoch starts over",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/test_driver", "a_driver_that_was_fenced_claims_before_it_does_anything_else"),
        removals=(dropped("Fenced"),),
    ),
    Rule(
        slug="own-claim",
        name="a claim of one's own that was in doubt is no takeover",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/test_claim", "a_claim_of_one_s_own_that_was_in_doubt_is_no_takeover"),
        removals=(dropped("found.attempt not in self._attempts"),),
    ),
)
