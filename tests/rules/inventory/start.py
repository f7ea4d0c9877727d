"""The start of a driver, and going on after what is unclear."""

from tests.rules.removals import argument, condition, deleted, dropped, followed, preceded, replaced, value
from tests.rules.rule import Chapter, Rule, tests

RULES = (
    Rule(
        slug="shared-lake",
        name="executors that do not share the lake are refused before the first batch",
        chapter=Chapter.START,
        tests=tests(
            "runtime/spark/test_lake_probe",
            "an_executor_with_a_different_lake_is_refused_and_named",
            "a_driver_checks_the_lake_once_before_its_first_batch",
        ),
        removals=(
            condition("False"),
            deleted(way="driver"),
        ),
    ),
    Rule(
        slug="no-second-log",
        name="an operator that has run before never creates a second log",
        chapter=Chapter.START,
        tests=(
            *tests(
                "runtime/batch_loop/test_earlier_runs",
                "an_operator_with_any_trace_waits_for_its_lake_and_then_continues",
            ),
            *tests(
                "runtime/stream/test_driver",
                "a_stream_that_has_run_before_never_creates_a_new_log",
                "a_stream_whose_lake_disappears_creates_no_new_log",
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
        tests=tests(
            "runtime/batch_loop/test_claim", "a_start_claims_then_initialises_ids_then_reads_marks_then_publishes"
        ),
        removals=(preceded("self._published_to(wanted)"),),
    ),
    Rule(
        slug="ids-before-marks",
        name="the transactional ids of all partitions are initialised before the marks are read",
        chapter=Chapter.START,
        tests=tests(
            "runtime/batch_loop/test_claim", "a_start_claims_then_initialises_ids_then_reads_marks_then_publishes"
        ),
        removals=(followed("break"),),
    ),
    Rule(
        slug="stable-marks",
        name="marks are read only when no transaction is about to change them",
        chapter=Chapter.START,
        tests=(
            *tests("runtime/kafka/test_transaction_protocols", "marks_are_requested_as_stable_offsets"),
            *tests("runtime/kafka/test_transactions", "a_mark_waits_for_the_transaction_that_is_about_to_change_it"),
        ),
        removals=(argument("require_stable", "False"),),
    ),
    Rule(
        slug="start-publishes",
        name="a start publishes output that is committed but not published",
        chapter=Chapter.START,
        tests=tests("runtime/publishing/test_publication", "a_start_publishes_the_committed_batch_above_the_mark"),
        removals=(deleted(),),
    ),
    Rule(
        slug="start-at-claim",
        name="if a step of the start fails, the start begins again with a claim",
        chapter=Chapter.START,
        tests=tests(
            "runtime/batch_loop/test_driver",
            "a_failing_step_of_the_start_starts_over_at_the_claim",
            "an_operator_that_cannot_be_opened_is_claimed_again",
        ),
        removals=(preceded("self.claim = Owned(operator)"),),
    ),
    Rule(
        slug="init-after-unclear-end",
        name="after an unclear end the next request is InitProducerId",
        chapter=Chapter.UNCLEAR,
        tests=tests(
            "runtime/publishing/test_publication", "after_an_end_without_an_answer_the_next_request_is_init_producer_id"
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="all-aborted-before-marks",
        name="the transactions of all unclear partitions are aborted before a mark is read",
        chapter=Chapter.UNCLEAR,
        tests=tests(
            "runtime/publishing/test_publication", "all_unclear_transactions_are_aborted_before_a_mark_is_read"
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="own-epoch",
        name="the driver's own id and epoch distinguish a timeout from a takeover",
        chapter=Chapter.UNCLEAR,
        tests=(
            *tests(
                "runtime/publishing/test_publication",
                "after_an_end_without_an_answer_the_next_request_is_init_producer_id",
                "a_takeover_is_detected_by_the_driver_s_own_id_and_epoch",
            ),
            *tests(
                "runtime/kafka/test_transactions",
                "a_takeover_fences_the_older_producer_whatever_it_does",
                "after_a_timeout_the_driver_s_own_id_and_epoch_are_accepted",
            ),
        ),
        removals=(
            argument("producer_id", "_NO_PRODUCER", way="asked"),
            condition("False", way="fenced"),
        ),
    ),
    Rule(
        slug="takeover-at-start",
        name="a transactional id is taken over only at start, after the claim",
        chapter=Chapter.UNCLEAR,
        tests=tests(
            "runtime/publishing/test_publication",
            "after_an_end_without_an_answer_the_next_request_is_init_producer_id",
            "an_abandoned_transaction_is_aborted_under_the_own_id_before_anything_else",
        ),
        removals=(replaced("self.producers[partition]", "None"),),
    ),
    Rule(
        slug="mark-after-timeout",
        name="after a timeout the mark is read, and missing output is published again",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/publishing/test_publication", "an_end_that_was_not_carried_out_is_published_again"),
        removals=(deleted(),),
    ),
    Rule(
        slug="fenced-stops",
        name="a fenced driver reads the log, and stops if the log has a higher epoch",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/batch_loop/test_claim", "a_superseded_driver_does_not_claim_again"),
        removals=(deleted(),),
    ),
    Rule(
        slug="fenced-starts-over",
        name="a driver that was fenced without a higher epoch in the log starts over",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/batch_loop/test_driver", "a_driver_that_was_fenced_claims_before_it_does_anything_else"),
        removals=(dropped("Fenced"),),
    ),
    Rule(
        slug="own-claim",
        name="a driver that finds its own claim in the log does not take it for a takeover",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/batch_loop/test_claim", "a_driver_s_own_claim_in_doubt_is_not_a_takeover"),
        removals=(dropped("found.attempt not in self._attempts"),),
    ),
)
