"""The Kafka client, the topics, and the kill points."""

from tests.rules.removals import argument, condition, deleted, dropped, instead, preceded, replaced, unwrapped, value
from tests.rules.rule import Chapter, Rule, tests

RULES = (
    Rule(
        slug="client-per-process",
        name="every process has its own client, created after the fork",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/kafka/test_client_rules", "every_process_and_every_thread_has_its_own_client"),
        removals=(
            replaced("os.getpid()", "0"),
            replaced("threading.get_ident()", "0"),
        ),
    ),
    Rule(
        slug="close-after-timeout",
        name="after a timeout the connections are closed",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/kafka/test_client_rules", "after_a_request_without_an_answer_all_connections_are_closed"),
        removals=(deleted(),),
    ),
    Rule(
        slug="one-request-at-a-time",
        name="a client sends one request at a time",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/kafka/test_client_rules", "a_client_sends_one_request_at_a_time"),
        removals=(unwrapped(),),
    ),
    Rule(
        slug="no-resend",
        name="the client never resends a request without a response",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/kafka/test_client_rules", "a_sent_record_is_not_sent_again"),
        removals=(preceded("if deadline.remaining_s:\n    return await self._answer(request, node_id, deadline)"),),
    ),
    Rule(
        slug="recreated-topic",
        name="a re-created topic stops the operator",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/batch_loop/test_preflight", "a_re_created_topic_stops_the_operator"),
        removals=(condition("not (known := topic_id)"),),
    ),
    Rule(
        slug="topic-ids-checked",
        name="topic ids are compared before and after each batch is read",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/batch_loop/test_driver", "topic_ids_are_compared_before_and_after_a_batch_is_read"),
        removals=(deleted(way="before"), deleted(way="after")),
    ),
    Rule(
        slug="truncated-input",
        name="a truncated input stops the operator, even if it has grown again",
        chapter=Chapter.KAFKA,
        tests=tests(
            "runtime/batch_loop/test_truncation",
            "a_fetch_sends_the_last_leader_epoch_and_returns_that_of_the_records_read",
            "if_read_records_are_missing_nothing_is_read",
            "a_log_or_leader_epoch_that_ends_before_the_next_offset_is_a_truncation",
            "a_driver_stops_if_the_input_ends_before_its_next_offset",
            "if_a_task_finds_a_truncation_the_driver_names_all_ranges",
            "a_plan_has_the_leader_epoch_of_the_last_record_and_the_log_stores_it",
            "after_an_accepted_loss_the_former_leader_epoch_does_not_count",
        ),
        removals=(
            condition("(truncated := 0)", way="answer"),
            dropped("last_fetched_epoch=", way="asked"),
            dropped("found.base_offset < offset", way="epoch"),
            replaced("known.leader_epoch", "-1", way="plan"),
            replaced("self.newest.is_beyond(ends)", "False", way="end"),
            argument("leader_epoch", "max(leader_epoch, known.leader_epoch)", way="skipped"),
            deleted(way="ranges"),
        ),
    ),
    Rule(
        slug="skip-keeps-leader-epoch",
        name="a skip back keeps the leader epoch of the remaining records, so that the next truncation is detected too",
        chapter=Chapter.KAFKA,
        tests=tests(
            "runtime/batch_loop/test_truncation",
            "the_leader_epoch_before_an_offset_is_that_of_the_record_there",
            "after_a_skip_back_leader_epochs_detect_the_next_truncation",
        ),
        removals=(
            dropped("epochs", way="passed"),
            argument("leader_epoch", "-1", way="kept"),
            condition("True", way="older"),
            condition("False", way="before-first"),
        ),
    ),
    Rule(
        slug="raised-offsets",
        name="after a skip back, records at reused offsets get new offsets in the log",
        chapter=Chapter.KAFKA,
        tests=(
            *tests(
                "state/test_raised_offsets",
                "offsets_of_the_log_are_unique_and_map_to_the_input",
                "a_skip_back_raises_later_offsets_and_a_skip_forward_does_not",
            ),
            *tests(
                "runtime/task/test_task",
                "a_record_at_a_reused_offset_is_a_separate_row",
                "a_partition_stopped_by_a_limit_names_an_offset_of_the_input",
            ),
            *tests("runtime/publishing/test_publication", "dead_letters_name_offsets_of_the_input"),
        ),
        removals=(
            dropped("raised=", way="recorded"),
            replaced("fetched.records.raised(raised)", "fetched.records", way="records"),
            replaced("step.stopped_at - raised", "step.stopped_at", way="stopped"),
            condition("False", way="dead-letters"),
            value("(reached, reached - end)", way="sum"),
        ),
    ),
    Rule(
        slug="same-partition",
        name="the output partition is the input partition",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/task/test_task", "emissions_are_written_to_the_partition_of_their_input"),
        removals=(replaced("to.partition", "0"),),
    ),
    Rule(
        slug="enough-output-partitions",
        name="the output, and the topic of dead letters, has at least as many partitions as the input",
        chapter=Chapter.KAFKA,
        tests=tests(
            "runtime/batch_loop/test_preflight",
            "an_output_with_fewer_partitions_is_refused",
            "a_topic_of_dead_letters_with_fewer_partitions_is_refused",
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="partitions-of-keys",
        name="a topic by keys has its records in the partitions that Kafka's clients choose, and as many as configured",
        chapter=Chapter.KAFKA,
        tests=(
            *tests(
                "runtime/publishing/test_output_by_key",
                "keys_are_partitioned_as_kafka_s_clients_do",
                "a_record_without_a_key_goes_to_the_partition_of_its_input_modulo_those_of_the_output",
                "each_record_is_in_the_partition_of_its_key_in_the_order_of_the_log",
                "of_each_new_key_the_topic_has_the_records_of_each_input_partition_once_in_their_order",
                "the_partitions_of_a_task_number_their_batches_for_a_partition_one_after_the_other",
            ),
            *tests(
                "runtime/batch_loop/test_preflight",
                "a_topic_whose_partitions_keys_decide_has_as_many_as_configured",
            ),
        ),
        removals=(
            value("np.full(len(keys), of_input % partitions)", way="murmur2"),
            instead(
                "for each in found:\n    yield _encoded(producer, route, output.topic, partition, each)",
                way="one-queue",
            ),
            condition("False", way="checked"),
        ),
    ),
    Rule(
        slug="same-input-partitions",
        name="an input with a different number of partitions stops the operator",
        chapter=Chapter.KAFKA,
        tests=tests(
            "runtime/batch_loop/test_preflight", "an_input_with_a_different_number_of_partitions_stops_the_operator"
        ),
        removals=(condition("(had := len(before.partitions)) is None"),),
    ),
    Rule(
        slug="equal-input-partitions",
        name="an operator that reads several input topics starts only if they have the same number of partitions",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/batch_loop/test_preflight", "input_topics_have_the_same_number_of_partitions"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="not-beyond-slowest",
        name="of several input topics, none is processed beyond the time of the slowest that has more",
        chapter=Chapter.KAFKA,
        tests=tests(
            "runtime/task/test_merging",
            "the_cut_into_batches_does_not_change_the_order",
            "a_topic_that_has_more_holds_the_others_back",
        ),
        removals=(condition("True"),),
    ),
    Rule(
        slug="numbered-in-turn",
        name="the records of several input topics are numbered in the order in which they are processed",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/task/test_merging", "the_records_of_all_topics_are_numbered_in_turn"),
        removals=(value("0"),),
    ),
    Rule(
        slug="merged-topics-one-stream",
        name="the records of several input topics are one stream, unless the operator joins two",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/task/test_merging", "only_an_operator_of_several_streams_learns_of_which_a_record_is"),
        removals=(value("topic"),),
    ),
    Rule(
        slug="refused-time-merges-nothing",
        name="the time of a record that is rejected does not hold back its input topic",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/task/test_merging", "records_are_taken_from_the_topic_whose_time_has_come_least_far"),
        removals=(value("times"),),
    ),
    Rule(
        slug="kill-points",
        name="every place where a crash is dangerous has a kill point",
        chapter=Chapter.KILL_POINTS,
        tests=(
            *tests("contracts/test_kill_points", "every_kill_point_is_in_the_code"),
            *tests("runtime/batch_loop/test_driver", "a_driver_reaches_its_kill_points_in_order"),
        ),
        removals=(
            deleted(),
            dropped("after_first=", way="half"),
        ),
    ),
    Rule(
        slug="unreadable-batch-rejected",
        name="an unreadable record batch becomes one rejected row",
        chapter=Chapter.KAFKA,
        tests=(
            *tests(
                "kernels/record_format/test_record_batch",
                "a_record_batch_over_the_size_limit_becomes_one_row_and_the_records_around_it_are_read",
            ),
            *tests("kernels/record_format/test_record_batch", "a_record_batch_that_was_sent_damaged_becomes_one_row"),
            *tests(
                "operators/test_unreadable_batches",
                "an_unreadable_record_batch_is_rejected_and_the_other_records_are_processed",
            ),
        ),
        removals=(
            instead("raise"),
            value("missing", way="row"),
        ),
    ),
)
