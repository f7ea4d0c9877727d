"""The mark: what has been published."""

from tests.rules.removals import argument, condition, deleted, dropped, followed, instead, preceded, replaced, value
from tests.rules.rule import Chapter, Rule, tests

RULES = (
    Rule(
        slug="mark-format",
        name="the mark names format, log and batch",
        chapter=Chapter.MARK,
        tests=tests(
            "state/test_protocol_decisions",
            "a_mark_reads_back_as_it_was_written",
            "a_text_in_a_different_format_is_not_a_mark",
        ),
        removals=(
            dropped("'tidegate/1 '", way="written"),
            replaced("_MARK.fullmatch", "_MARK.match", way="read"),
        ),
    ),
    Rule(
        slug="mark-with-output",
        name="the mark is committed in the transaction of the output",
        chapter=Chapter.MARK,
        tests=tests("runtime/publishing/test_publication", "output_offset_and_mark_share_one_transaction"),
        removals=(
            replaced("format_mark(self._log.table_id, batch)", "''"),
            preceded("return opened"),
        ),
    ),
    Rule(
        slug="mark-by-batch",
        name="marks are compared by batch, never by offset",
        chapter=Chapter.MARK,
        tests=tests("runtime/publishing/test_publication", "marks_are_compared_by_batch_never_by_offset"),
        removals=(
            followed("if committed and committed.offset >= newest.partitions[partition].next_offset:\n    continue"),
        ),
    ),
    Rule(
        slug="group-in-transactions",
        name="only transactions write to the group",
        chapter=Chapter.MARK,
        tests=tests("project/test_house", "a_group_s_offsets_are_committed_in_transactions_only"),
        removals=(instead("from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest"),),
    ),
    Rule(
        slug="publish-above-mark",
        name="a committed batch above the mark is published",
        chapter=Chapter.MARK,
        tests=(
            *tests(
                "state/test_protocol_decisions",
                "the_one_batch_above_the_mark_is_published",
                "output_up_to_the_mark_is_published",
            ),
            *tests("runtime/publishing/test_publication", "a_start_publishes_the_committed_batch_above_the_mark"),
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
        tests=tests("state/test_protocol_decisions", "several_batches_above_the_mark_are_a_state_error"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="mark-above-log",
        name="a mark above the log stops the operator",
        chapter=Chapter.MARK,
        tests=tests("state/test_protocol_decisions", "a_mark_that_cannot_be_trusted_stops_with_the_remedy"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="mark-of-other-log",
        name="a mark of a different log stops the operator",
        chapter=Chapter.MARK,
        tests=tests("state/test_protocol_decisions", "a_mark_that_cannot_be_trusted_stops_with_the_remedy"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="mark-of-other-format",
        name="a mark in a different format stops the operator",
        chapter=Chapter.MARK,
        tests=tests("state/test_protocol_decisions", "a_mark_that_cannot_be_trusted_stops_with_the_remedy"),
        removals=(instead("if parsed is None:\n    return -1"),),
    ),
    Rule(
        slug="absent-mark-topics",
        name="without a mark nothing is assumed about publication",
        chapter=Chapter.MARK,
        tests=tests("state/test_protocol_decisions", "a_missing_mark_is_resolved_and_never_assumed"),
        removals=(value("unpublished_above(-1, outputs)"),),
    ),
    Rule(
        slug="absent-mark-by-headers",
        name="without a mark the headers at the end of the output decide",
        chapter=Chapter.MARK,
        tests=tests("runtime/publishing/test_publication", "a_missing_mark_is_resolved_by_the_output_s_headers"),
        removals=(value("None"),),
    ),
    Rule(
        slug="absent-mark-by-keys",
        name="where keys decide, the headers of the input partition's own records count, in the partitions of its keys",
        chapter=Chapter.MARK,
        tests=tests(
            "runtime/publishing/test_output_by_key",
            "without_a_mark_the_partitions_of_the_batch_s_keys_are_searched_for_the_input_partition_s_records",
            "without_a_mark_one_partition_that_has_the_batch_shows_that_all_have_it",
        ),
        removals=(
            argument("of_input", "None"),
            replaced("self._places_by_key(by_keys[topic], partition, batch)", "[partition]"),
        ),
    ),
    Rule(
        slug="absent-mark-newest-output",
        name="without a mark only the newest output is in question",
        chapter=Chapter.MARK,
        tests=tests("runtime/publishing/test_publication", "with_a_missing_mark_only_the_newest_output_is_in_question"),
        removals=(
            value("decide_from_topics(outputs[0], self._topic_ends(partition, outputs[-1], newest))", way="asked"),
            replaced("tail.newest >= batch", "tail.newest == batch", way="decided"),
        ),
    ),
    Rule(
        slug="absent-mark-person-decides",
        name="if nothing shows whether the newest output was published, a person decides",
        chapter=Chapter.MARK,
        tests=(
            *tests(
                "runtime/publishing/test_publication",
                "if_nothing_shows_whether_output_was_published_a_person_decides",
                "a_settlement_is_carried_out",
            ),
            *tests("runtime/repair/test_settle", "a_settlement_is_recorded_by_a_claim_and_the_marks_are_written"),
        ),
        removals=(
            replaced("earliest(self._client(), topic)[partition] == 0", "True", way="whole"),
            dropped("not self._client().is_compacted(topic)", way="compacted"),
            replaced("said.outcome is Outcome.PUBLISHED", "True", way="answer"),
            replaced("any((tail.whole for tail in tails))", "tails", way="decided"),
            deleted(way="recorded"),
        ),
    ),
    Rule(
        slug="absent-mark-nothing-open",
        name="without a mark the output is searched only when no open transaction hides its end",
        chapter=Chapter.MARK,
        tests=tests(
            "runtime/kafka/test_transaction_protocols", "the_newest_batch_is_searched_once_no_transaction_is_open"
        ),
        removals=(condition("True"),),
    ),
    Rule(
        slug="mark-renewed",
        name="marks are committed again well before the brokers drop them",
        chapter=Chapter.MARK,
        tests=tests(
            "runtime/publishing/test_publication",
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
        name="the search uses the operator's own committed headers, the newest first",
        chapter=Chapter.MARK,
        tests=tests("runtime/kafka/test_transactions", "the_newest_batch_is_found_before_records_of_other_writers"),
        removals=(condition("headers"),),
    ),
    Rule(
        slug="headers-above-log",
        name="headers of a batch above the log's newest stop the operator",
        chapter=Chapter.MARK,
        tests=tests(
            "runtime/publishing/test_publication", "output_above_the_newest_batch_of_the_log_stops_the_operator"
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="mark-by-current-log",
        name="if a mark is above the log, the log is read again: a driver that was fenced meanwhile starts over",
        chapter=Chapter.MARK,
        tests=tests(
            "runtime/publishing/test_publication",
            "a_mark_above_a_fenced_driver_s_log_shows_its_successor",
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="publish-from-configured",
        name="publishing starts at the batch in which output was configured",
        chapter=Chapter.MARK,
        tests=(
            *tests("runtime/batch_loop/test_claim", "publishing_starts_at_the_claim_in_which_output_was_configured"),
            *tests("runtime/batch_loop/test_claim", "dead_letters_start_at_the_claim_in_which_they_were_configured"),
            *tests(
                "runtime/publishing/test_publication",
                "emissions_from_before_output_was_configured_are_not_published",
                "a_batch_is_published_again_without_dead_letters_configured_later",
            ),
        ),
        removals=(
            argument("after_batch", "after_batch", way="outputs"),
            replaced("each.since <= batch", "True", way="rows"),
            value("{}", way="sinks"),
            deleted(),
        ),
    ),
    Rule(
        slug="former-output-first",
        name="output committed for a former topic is published there first",
        chapter=Chapter.MARK,
        tests=tests("runtime/batch_loop/test_claim", "output_committed_for_a_former_topic_is_published_there_first"),
        removals=(deleted(),),
    ),
    Rule(
        slug="unpublished-kept",
        name="compaction and retention never drop rows of a batch above the mark",
        chapter=Chapter.MARK,
        tests=tests("state/test_compaction", "output_above_the_mark_stays_however_old_it_is"),
        removals=(replaced("min(expired, published.get(partition, expired))", "expired"),),
    ),
    Rule(
        slug="redrive-claimed",
        name="of two redrives that were planned at the same time one sends",
        chapter=Chapter.MARK,
        tests=tests(
            "runtime/repair/test_redrive",
            "of_two_redrives_that_were_planned_at_the_same_time_one_is_refused",
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="redrive-taken-over",
        name="a redrive that another one has taken over sends nothing more",
        chapter=Chapter.MARK,
        tests=tests("runtime/repair/test_redrive", "a_run_that_was_taken_over_sends_nothing_more"),
        removals=(condition("False"),),
    ),
)
