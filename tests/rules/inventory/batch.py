"""A batch, from its plan to the ends of its transactions."""

from tests.rules.removals import argument, condition, deleted, dropped, instead, outside, preceded, replaced, value
from tests.rules.rule import Chapter, Rule, tests

RULES = (
    Rule(
        slug="stable-offsets",
        name="a batch is planned up to the last stable offset",
        chapter=Chapter.BATCH,
        tests=(
            *tests("runtime/batch_loop/test_driver", "a_batch_is_planned_up_to_the_last_stable_offset"),
            *tests("runtime/kafka/test_transaction_protocols", "last_stable_offsets_are_asked_for_with_read_committed"),
        ),
        removals=(
            replaced("offsets.stable", "offsets.latest", way="planned"),
            replaced("_READ_COMMITTED", "_READ_UNCOMMITTED", way="isolation"),
        ),
    ),
    Rule(
        slug="idle-at-high-watermark",
        name="no partition is idle while its high watermark is beyond the next offset",
        chapter=Chapter.BATCH,
        tests=(
            *tests(
                "runtime/batch_loop/test_planning",
                "a_partition_is_not_idle_while_records_of_open_transactions_wait_after_its_last_stable_offset",
            ),
            *tests("runtime/batch_loop/test_driver", "no_partition_is_idle_while_its_producers_transactions_are_open"),
        ),
        removals=(
            value("True", way="plan"),
            replaced("offsets.latest(self._kafka(), topic)", "ends", way="read"),
        ),
    ),
    Rule(
        slug="one-clock",
        name="the clock is read once per batch",
        chapter=Chapter.BATCH,
        tests=tests("runtime/batch_loop/test_driver", "the_clock_is_read_once_for_a_batch"),
        removals=(argument("clock", "self._clock.now_ms()"),),
    ),
    Rule(
        slug="settled-before-plan",
        name="no batch is planned while the outcome of a publication is unknown",
        chapter=Chapter.BATCH,
        tests=tests("runtime/batch_loop/test_driver", "no_batch_is_planned_while_a_publication_is_not_settled"),
        removals=(deleted(),),
    ),
    Rule(
        slug="no-task-retry",
        name="a task refuses to run if Spark retries it",
        chapter=Chapter.BATCH,
        tests=tests("runtime/task/test_task", "a_task_that_spark_retries_refuses_to_run"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="one-stage-attempt",
        name="no Spark stage has a second attempt",
        chapter=Chapter.BATCH,
        tests=tests("runtime/spark/test_session", "spark_never_retries"),
        removals=(dropped("'spark.stage.maxConsecutiveAttempts':"),),
    ),
    Rule(
        slug="no-spark-retries",
        name="a start refuses settings that would make Spark retry a task",
        chapter=Chapter.BATCH,
        tests=tests("runtime/configuration/test_application", "settings_that_make_spark_retry_a_task_are_refused"),
        removals=(
            dropped("'spark.speculation':"),
            dropped("'spark.stage.maxConsecutiveAttempts':"),
        ),
    ),
    Rule(
        slug="partition-lock",
        name="one task at a time works on a partition's state",
        chapter=Chapter.BATCH,
        tests=tests("state/test_local_state", "a_lock_that_is_held_too_long_is_an_engine_error"),
        removals=(replaced("fcntl.LOCK_EX", "fcntl.LOCK_SH"),),
    ),
    Rule(
        slug="lock-until-files",
        name="the lock is held until the output is open and the files are written",
        chapter=Chapter.BATCH,
        tests=tests("runtime/task/test_task", "the_lock_is_held_until_the_output_is_open"),
        removals=(outside(),),
    ),
    Rule(
        slug="superseded-task",
        name="if the header has a larger epoch or batch, the task is superseded and changes nothing",
        chapter=Chapter.BATCH,
        tests=(
            *tests("state/test_protocol_decisions", "a_header_with_a_larger_epoch_or_batch_supersedes_the_task"),
            *tests("state/test_local_state", "a_task_older_than_the_header_is_superseded_and_changes_nothing"),
        ),
        removals=(
            deleted(way="lock"),
            replaced("(header.epoch, header.batch) > token", "header.epoch > token[0]", way="decision"),
        ),
    ),
    Rule(
        slug="input-first",
        name="all input is fetched before the first change of the state",
        chapter=Chapter.BATCH,
        tests=tests("runtime/task/test_task", "a_failed_fetch_never_damages_a_local_state"),
        removals=(preceded("local.begin(attempt.epoch, attempt.batch, attempt.attempt)"),),
    ),
    Rule(
        slug="read-together-whole",
        name="what one request brings of several partitions counts where it is the whole range",
        chapter=Chapter.BATCH,
        tests=tests(
            "runtime/kafka/test_fetch", "ranges_of_several_partitions_come_with_one_answer_each_whole_or_not_at_all"
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="fetch-retries",
        name="a task retries Kafka errors until its deadline",
        chapter=Chapter.BATCH,
        tests=tests(
            "runtime/kafka/test_transaction_protocols", "a_fetch_without_an_answer_is_sent_again_until_the_deadline"
        ),
        removals=(instead("raise"),),
    ),
    Rule(
        slug="position-behind-batch",
        name="the position after a record batch is base offset + last offset delta + 1, even if the batch is skipped",
        chapter=Chapter.BATCH,
        tests=tests(
            "kernels/record_format/test_record_batch",
            "the_position_moves_past_offsets_that_compaction_removed",
            "an_empty_batch_after_compaction_moves_the_position",
            "aborted_transactions_and_control_batches_are_skipped_and_passed",
        ),
        removals=(
            replaced("int(found.last_offset[-1]) + 1", "int(found.base_offset[-1] + found.record_count[-1])"),
            replaced("found", "wanted"),
        ),
    ),
    Rule(
        slug="aborted-skipped",
        name="records of aborted transactions are skipped",
        chapter=Chapter.BATCH,
        tests=tests(
            "kernels/record_format/test_record_batch", "aborted_transactions_and_control_batches_are_skipped_and_passed"
        ),
        removals=(
            dropped("~_in_aborted(data, found, aborted)", way="records"),
            deleted(way="ends"),
        ),
    ),
    Rule(
        slug="record-too-large",
        name="a record too large for the output is refused before anything is sent, with the remedy",
        chapter=Chapter.BATCH,
        tests=tests(
            "kernels/record_format/test_record_batch",
            "a_record_larger_than_the_limit_is_named_before_anything_is_written",
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="no-empty-transaction",
        name="without output there is no transaction",
        chapter=Chapter.BATCH,
        tests=tests("runtime/task/test_task", "without_emissions_nothing_is_opened"),
        removals=(deleted(),),
    ),
    Rule(
        slug="output-repeatable",
        name="output can be rebuilt from the log, byte for byte and in order",
        chapter=Chapter.BATCH,
        tests=tests(
            "runtime/publishing/test_publication",
            "output_published_again_is_equal_byte_for_byte",
            "output_of_every_kind_published_again_is_equal_byte_for_byte",
            "late_and_rejected_dead_letters_are_ordered_by_offset",
        ),
        removals=(
            value(
                "self._log.read(kind, partition, after_batch=batch - 1, up_to=batch if wanted else batch - 1)"
                ".sort_by([('seq', 'descending')])",
                way="order",
            ),
            argument("batch", "newest.batch", way="batch"),
            value("letters", way="dead-letters"),
        ),
    ),
    Rule(
        slug="data-files-synced",
        name="data files and their folders are on disk before the log names them",
        chapter=Chapter.BATCH,
        tests=tests("state/test_operator_log", "data_files_and_their_folders_are_on_disk_before_the_log_names_them"),
        removals=(deleted(),),
    ),
    Rule(
        slug="entry-synced",
        name="the log's entry and folder are on disk before a commit counts",
        chapter=Chapter.BATCH,
        tests=tests(
            "state/test_operator_log",
            "the_entry_is_on_disk_before_its_name_and_the_name_before_the_commit_counts",
            "a_checkpoint_is_on_disk_before_its_name_and_the_name_before_others_follow",
            "a_name_that_cannot_be_made_durable_is_unavailable",
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="commit-then-publish",
        name="transactions end after the commit",
        chapter=Chapter.BATCH,
        tests=tests(
            "runtime/batch_loop/test_driver", "transactions_end_after_the_commit_and_only_those_that_were_opened"
        ),
        removals=(preceded("self._publish(results, _opened(results))"),),
    ),
    Rule(
        slug="unmarked-aborted",
        name="a transaction whose mark was not added is aborted, never committed",
        chapter=Chapter.BATCH,
        tests=tests(
            "runtime/batch_loop/test_driver",
            "a_transaction_whose_mark_was_not_added_is_aborted_and_its_output_published_from_the_log",
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="end-opened-only",
        name="only transactions that were opened are ended",
        chapter=Chapter.BATCH,
        tests=tests("runtime/kafka/test_transaction_protocols", "a_transaction_that_was_not_opened_is_not_ended"),
        removals=(dropped("result.opened"),),
    ),
    Rule(
        slug="transaction-of-task",
        name="the partitions of a task share a transaction",
        chapter=Chapter.BATCH,
        tests=tests("runtime/task/test_task", "the_partitions_of_a_task_share_a_transaction"),
        removals=(value("[[one] for one in done]"),),
    ),
    Rule(
        slug="ends-together",
        name="all transactions of a batch are ended at once",
        chapter=Chapter.BATCH,
        tests=tests("runtime/publishing/test_publication", "all_transactions_of_a_batch_are_ended_at_once"),
        removals=(value("[[each] for each in opened]"),),
    ),
    Rule(
        slug="refusal-starts-over",
        name="after a definite refusal by Delta the driver starts over with a claim",
        chapter=Chapter.BATCH,
        tests=tests("runtime/batch_loop/test_driver", "a_commit_that_is_refused_or_unclear_starts_over_with_a_claim"),
        removals=(dropped("StartOver"),),
    ),
    Rule(
        slug="init-after-failure",
        name="after a failed attempt the next request is InitProducerId",
        chapter=Chapter.BATCH,
        tests=(
            *tests("runtime/batch_loop/test_driver", "a_failed_attempt_leaves_neither_files_nor_open_transactions"),
            *tests(
                "runtime/publishing/test_publication",
                "an_abandoned_transaction_is_aborted_under_the_own_id_before_anything_else",
            ),
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="transaction-timeout",
        name="a transaction's timeout is three deadlines, and at least one minute",
        chapter=Chapter.BATCH,
        tests=tests(
            "runtime/publishing/test_publication", "the_transaction_timeout_is_three_deadlines_and_a_minute_at_least"
        ),
        removals=(
            dropped("3"),
            value("int(3 * deadline_s * 1000)"),
        ),
    ),
    Rule(
        slug="timeout-allowed",
        name="the transaction timeout is checked against the broker's maximum at start",
        chapter=Chapter.BATCH,
        tests=tests(
            "runtime/kafka/test_transaction_protocols", "a_timeout_longer_than_the_broker_allows_is_a_user_error"
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="shared-deadline",
        name="the partitions of a task share one deadline for Kafka",
        chapter=Chapter.BATCH,
        tests=tests("runtime/task/test_task", "the_partitions_of_a_task_share_one_deadline"),
        removals=(argument("deadline_s", "self.attempt.deadline_s"),),
    ),
    Rule(
        slug="abort-before-waiting",
        name="no transaction stays open while the driver waits for the lake or a person",
        chapter=Chapter.BATCH,
        tests=tests(
            "runtime/batch_loop/test_driver",
            "no_transaction_stays_open_while_the_lake_is_waited_for",
            "a_batch_that_lost_a_record_leaves_no_transaction_open",
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="abort-at-end",
        name="a driver that ends aborts its open transactions",
        chapter=Chapter.BATCH,
        tests=tests(
            "runtime/batch_loop/test_driver",
            "a_driver_that_ends_aborts_its_open_transactions",
            "a_driver_that_ends_with_a_commit_in_doubt_leaves_its_transactions_open",
        ),
        removals=(deleted(),),
    ),
)
