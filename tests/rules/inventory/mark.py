"""The mark: what has been published."""

from tests.rules.rule import Chapter, Rule, tests, without

_DECISIONS, _PUBLICATION = "state/decisions", "runtime/publishing/publication"

RULES = (
    Rule(
        name="the mark names format, log and batch",
        chapter=Chapter.MARK,
        tests=tests("state/test_decisions", "a_mark_reads_back_as_it_was_written", "a_text_of_another_form_is_no_mark"),
        removals=(
            without(_DECISIONS, 'return f"tidegate/1 {table_id} {batch}"', 'return f"{table_id} {batch}"'),
            without(_DECISIONS, "_MARK.fullmatch(text)", "_MARK.match(text)"),
        ),
    ),
    Rule(
        name="the mark travels with the output, in its transaction",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_publication", "output_offset_and_mark_stand_in_one_transaction"),
        removals=(
            without("runtime/publishing/encoding", "format_mark(to.table_id, to.batch),", '"",'),
            without("runtime/publishing/encoding", "return commit_offset(", "return producer\n    commit_offset("),
        ),
    ),
    Rule(
        name="marks are compared by batch, never by offset",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_publication", "marks_are_compared_by_batch_never_by_offset"),
        removals=(
            without(
                _PUBLICATION,
                "mark = committed.metadata if committed is not None else None",
                "mark = committed.metadata if committed else None\n"
                "            if committed and committed.offset >= newest.offsets[self._input][partition]:\n"
                "                continue",
            ),
        ),
    ),
    Rule(
        name="the group is written in transactions only",
        chapter=Chapter.MARK,
        tests=tests("test_house", "a_group_s_offsets_are_committed_in_transactions_only"),
        removals=(
            without(
                "runtime/kafka/offsets",
                "from kafka.protocol.consumer import OffsetFetchRequest",
                "from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest",
            ),
        ),
    ),
    Rule(
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
            without(_DECISIONS, "{batch for batch in outputs if batch > published}", "set(outputs)"),
            without(_PUBLICATION, "if batch is not None and what is Settling.PUBLISH:", "if False:"),
        ),
    ),
    Rule(
        name="several batches above the mark are a state error",
        chapter=Chapter.MARK,
        tests=tests("state/test_decisions", "several_batches_above_the_mark_are_a_state_error"),
        removals=(without(_DECISIONS, "if len(due) > 1:", "if False:"),),
    ),
    Rule(
        name="a mark above the log stops the operator",
        chapter=Chapter.MARK,
        tests=tests("state/test_decisions", "a_mark_that_cannot_be_trusted_stops_with_the_way_on"),
        removals=(without(_DECISIONS, "if parsed.batch > newest_batch:", "if False:"),),
    ),
    Rule(
        name="a mark of another log stops the operator",
        chapter=Chapter.MARK,
        tests=tests("state/test_decisions", "a_mark_that_cannot_be_trusted_stops_with_the_way_on"),
        removals=(without(_DECISIONS, "if parsed.table_id != table_id:", "if False:"),),
    ),
    Rule(
        name="a mark of another form stops the operator",
        chapter=Chapter.MARK,
        tests=tests("state/test_decisions", "a_mark_that_cannot_be_trusted_stops_with_the_way_on"),
        removals=(without(_DECISIONS, "if parsed is None:", "if parsed is None:\n        return -1\n    if False:"),),
    ),
    Rule(
        name="an absent mark is never assumed",
        chapter=Chapter.MARK,
        tests=tests("state/test_decisions", "an_absent_mark_is_resolved_never_assumed"),
        removals=(
            without(
                _DECISIONS,
                "return Settle(Settling.RESOLVE) if outputs else Settle(Settling.NOTHING)",
                "return unpublished_above(-1, outputs)",
            ),
        ),
    ),
    Rule(
        name="an absent mark is resolved by the headers at the end of the output",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_publication", "an_absent_mark_is_resolved_by_the_output_s_headers"),
        removals=(
            without(
                _PUBLICATION,
                "found = newest_batch_header(self._client(), topic, partition, self._operator)",
                "found = None",
            ),
        ),
    ),
    Rule(
        name="an absent mark asks of the newest output alone",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_publication", "with_an_absent_mark_the_newest_output_alone_is_in_question"),
        removals=(
            without(_PUBLICATION, "decision = resolved(outputs[-1], self", "decision = resolved(outputs[0], self"),
            without(_DECISIONS, "tail.newest >= batch for tail in tails", "tail.newest == batch for tail in tails"),
        ),
    ),
    Rule(
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
            without(_PUBLICATION, "earliest(self._client(), topic)[partition] == 0", "True"),
            without(_PUBLICATION, " and not self._client().is_compacted(topic))", ")"),
            without(_PUBLICATION, 'said[1] == "published"', "True"),
            without(_DECISIONS, "if any(tail.whole for tail in tails) else Settling.ASK", "if tails else Settling.ASK"),
            without("runtime/repair/settle", "    log.commit(claim, [])", ""),
        ),
    ),
    Rule(
        name="an absent mark is resolved when no transaction of others hides the end of the output",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_transaction_protocols", "the_newest_batch_is_looked_for_once_nothing_is_open"),
        removals=(without("runtime/kafka/offsets", "if stable(client, topic)[partition] >= end:", "if True:"),),
    ),
    Rule(
        name="marks are committed again well before the brokers drop them",
        chapter=Chapter.MARK,
        tests=tests(
            "runtime/test_publication",
            "the_marks_of_quiet_partitions_are_committed_again_well_before_they_expire",
        ),
        removals=(
            without(_PUBLICATION, " or self._is_old(partition, now))", ")"),
            without(_PUBLICATION, "self._marked_at[partition] = -math.inf  #", "self._marked_at[partition] = 0  #"),
            without(_PUBLICATION, "or UNKNOWN_RETENTION_S) / RENEWALS", "or UNKNOWN_RETENTION_S)"),
        ),
    ),
    Rule(
        name="the headers looked for are the operator's own, committed, and the newest",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_kafka_transactions", "the_newest_batch_is_found_behind_other_writers_records"),
        removals=(
            without(
                "runtime/kafka/offsets", "if headers.get(HEADER_OPERATOR.encode()) == operator.encode():", "if headers:"
            ),
        ),
    ),
    Rule(
        name="headers above the log's batch stop the operator",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_publication", "an_output_with_a_batch_above_the_log_s_stops"),
        removals=(without(_PUBLICATION, "if found is not None and found > newest.batch:", "if False:"),),
    ),
    Rule(
        name="a mark above the log is judged by the log as it is now: a driver that was fenced meanwhile starts over",
        chapter=Chapter.MARK,
        tests=tests(
            "runtime/test_publication",
            "a_mark_above_the_log_as_a_fenced_driver_knows_it_tells_of_its_successor",
        ),
        removals=(without(_PUBLICATION, "self._notice_successor(contradiction)"),),
    ),
    Rule(
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
            without(_PUBLICATION, "max(after_batch, since - 1)", "after_batch"),
            without(_PUBLICATION, "max(batch, since) - 1", "batch - 1"),
            without("runtime/batch_loop/claim", "claim = replace(claim, dead_letters_from=claim.batch)"),
            without("runtime/batch_loop/claim", "claim = replace(claim, published_from=claim.batch)"),
        ),
    ),
    Rule(
        name="what is committed for a former output is published there first",
        chapter=Chapter.MARK,
        tests=tests("runtime/test_claim", "what_is_committed_for_a_former_output_is_published_there_first"),
        removals=(without("runtime/batch_loop/claim", "self._settle_former_outlets()"),),
    ),
    Rule(
        name="compaction and retention never drop rows of a batch above the mark",
        chapter=Chapter.MARK,
        tests=tests("state/test_compaction", "output_above_the_mark_stays_however_old_it_is"),
        removals=(without("state/upkeep/compaction", "min(expired, published.get(partition, -1))", "expired"),),
    ),
)
