"""The mark: what has been published."""

from tests.rules.removals import argument, condition, deleted, dropped, followed, instead, preceded, replaced, value
from tests.rules.rule import Chapter, Rule, tests

_DECISIONS, _PUBLICATION = "state/decisions", "runtime/publishing/publication"

RULES = (
    Rule(
        slug="mark-format",
        name="the mark names format, log and batch",
        chapter=Chapter.MARK,
        tests=tests("state/test_decisions", "a_mark_reads_back_as_it_was_written", "a_text_of_another_form_is_no_mark"),
        removals=(
            dropped("'tidegate/1 '", way="written"),
            replaced("_MARK.fullmatch", "_MARK.match", way="read"),
        ),
    ),
    Rule(
        slug="mark-with-output",
        name="the mark travels with the output, in its transaction",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_publication", "output_offset_and_mark_stand_in_one_transaction"),
        removals=(
            replaced("format_mark(to.table_id, to.batch)", "''"),
            preceded("return producer"),
        ),
    ),
    Rule(
        slug="mark-by-batch",
        name="marks are compared by batch, never by offset",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_publication", "marks_are_compared_by_batch_never_by_offset"),
        removals=(
            followed("if committed and committed.offset >= newest.offsets[self._input][partition]:\n    continue"),
        ),
    ),
    Rule(
        slug="group-in-transactions",
        name="the group is written in transactions only",
        chapter=Chapter.MARK,
        tests=tests("test_house", "a_group_s_offsets_are_committed_in_transactions_only"),
        removals=(instead("from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest"),),
    ),
    Rule(
        slug="publish-above-mark",
        name="the committed batch above the mark is published",
        chapter=Chapter.MARK,
        tests=(
            *tests(
                "state/test_decisions",
                "the_one_batch_above_the_mark_is_published",
                "output_up_to_the_mark_is_published",
            ),
            *tests("runtime/test_publication", "what_is_committed_above_the_mark_is_published_at_start"),
        ),
        removals=(
            replaced("{batch for batch in outputs if batch > published}", "set(outputs)", way="decision"),
            condition("False", way="published"),
        ),
    ),
    Rule(
        slug="one-batch-above-mark",
        name="several batches above the mark are a state error",
        chapter=Chapter.MARK,
        tests=tests("state/test_decisions", "several_batches_above_the_mark_are_a_state_error"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="mark-above-log",
        name="a mark above the log stops the operator",
        chapter=Chapter.MARK,
        tests=tests("state/test_decisions", "a_mark_that_cannot_be_trusted_stops_with_the_way_on"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="mark-of-other-log",
        name="a mark of another log stops the operator",
        chapter=Chapter.MARK,
        tests=tests("state/test_decisions", "a_mark_that_cannot_be_trusted_stops_with_the_way_on"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="mark-of-other-form",
        name="a mark of another form stops the operator",
        chapter=Chapter.MARK,
        tests=tests("state/test_decisions", "a_mark_that_cannot_be_trusted_stops_with_the_way_on"),
        removals=(instead("if parsed is None:\n    return -1"),),
    ),
    Rule(
        slug="absent-mark-decide_from_topics",
        name="an absent mark is never assumed",
        chapter=Chapter.MARK,
        tests=tests("state/test_decisions", "an_absent_mark_is_resolved_never_assumed"),
        removals=(value("unpublished_above(-1, outputs)"),),
    ),
    Rule(
        slug="absent-mark-by-headers",
        name="an absent mark is resolved by the headers at the end of the output",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_publication", "an_absent_mark_is_resolved_by_the_output_s_headers"),
        removals=(value("None"),),
    ),
    Rule(
        slug="absent-mark-newest-output",
        name="an absent mark asks of the newest output alone",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_publication", "with_an_absent_mark_the_newest_output_alone_is_in_question"),
        removals=(
            value("decide_from_topics(outputs[0], self._topic_ends(partition, outputs[-1], newest))", way="asked"),
            replaced("tail.newest >= batch", "tail.newest == batch", way="decided"),
        ),
    ),
    Rule(
        slug="absent-mark-asks",
        name="where nothing tells whether the newest output was published, a person is asked",
        chapter=Chapter.MARK,
        tests=(
            *tests(
                "runtime/test_publication",
                "where_nothing_tells_whether_the_newest_output_was_published_a_person_is_asked",
                "what_a_person_has_said_is_done",
            ),
            *tests("runtime/test_settling", "what_was_said_is_recorded_by_a_claim_and_the_marks_are_written"),
        ),
        removals=(
            replaced("earliest(self._client(), topic)[partition] == 0", "True", way="whole"),
            dropped("not self._client().is_compacted(topic)", way="compacted"),
            replaced("said[1] == 'published'", "True", way="answer"),
            replaced("any((tail.whole for tail in tails))", "tails", way="decided"),
            deleted(way="recorded"),
        ),
    ),
    Rule(
        slug="absent-mark-nothing-open",
        name="an absent mark is resolved when no transaction of others hides the end of the output",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_transaction_protocols", "the_newest_batch_is_looked_for_once_nothing_is_open"),
        removals=(condition("True"),),
    ),
    Rule(
        slug="mark-renewed",
        name="marks are committed again well before the brokers drop them",
        chapter=Chapter.MARK,
        tests=tests(
            "runtime/test_publication",
            "the_marks_of_quiet_partitions_are_committed_again_well_before_they_expire",
        ),
        removals=(
            dropped("self._is_old(partition, now)", way="committed"),
            value("0", way="found"),
            dropped("RENEWALS", way="interval"),
        ),
    ),
    Rule(
        slug="own-headers",
        name="the headers looked for are the operator's own, committed, and the newest",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_kafka_transactions", "the_newest_batch_is_found_behind_other_writers_records"),
        removals=(condition("headers"),),
    ),
    Rule(
        slug="headers-above-log",
        name="headers above the log's batch stop the operator",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_publication", "an_output_with_a_batch_above_the_log_s_stops"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="mark-by-current-log",
        name="a mark above the log is judged by the log as it is now: a driver that was fenced meanwhile starts over",
        chapter=Chapter.MARK,
        tests=tests(
            "runtime/test_publication",
            "a_mark_above_the_log_as_a_fenced_driver_knows_it_tells_of_its_successor",
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="publish-from-configured",
        name="publishing starts at the batch in which output was configured",
        chapter=Chapter.MARK,
        tests=(
            *tests("runtime/test_claim", "publishing_starts_at_the_claim_in_which_output_was_configured"),
            *tests("runtime/test_claim", "dead_letters_start_at_the_claim_in_which_they_were_configured"),
            *tests(
                "runtime/test_publication",
                "what_was_emitted_before_output_was_configured_is_not_in_question",
                "a_batch_is_published_again_without_what_was_configured_after_it",
            ),
        ),
        removals=(
            argument("after_batch", "after_batch", way="outputs"),
            replaced("max(batch, since)", "batch", way="rows"),
            deleted(),
        ),
    ),
    Rule(
        slug="former-output-first",
        name="what is committed for a former output is published there first",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_claim", "what_is_committed_for_a_former_output_is_published_there_first"),
        removals=(deleted(),),
    ),
    Rule(
        slug="unpublished-kept",
        name="compaction and retention never drop rows of a batch above the mark",
        chapter=Chapter.MARK,
        tests=tests("state/test_compaction", "output_above_the_mark_stays_however_old_it_is"),
        removals=(replaced("min(expired, published.get(partition, -1))", "expired"),),
    ),
)
