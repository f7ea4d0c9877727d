"""The Kafka client, the topics, and the kill points."""

from tests.rules.removals import argument, condition, deleted, dropped, instead, preceded, replaced, unwrapped, value
from tests.rules.rule import Chapter, Rule, tests

_CLIENT, _OPENING, _DRIVER = "runtime/kafka/client", "runtime/batch_loop/preflight", "runtime/batch_loop/driver"

RULES = (
    Rule(
        slug="client-per-process",
        name="every process has a client of its own, made after the fork",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_client_rules", "every_process_and_every_thread_has_a_client_of_its_own"),
        removals=(
            replaced("os.getpid()", "0"),
            replaced("threading.get_ident()", "0"),
        ),
    ),
    Rule(
        slug="close-after-timeout",
        name="after a timeout the connections are closed",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_client_rules", "after_a_request_without_an_answer_all_connections_are_closed"),
        removals=(deleted(),),
    ),
    Rule(
        slug="one-request-at-a-time",
        name="one request of a client is under way at a time",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_client_rules", "one_call_of_a_client_is_under_way_at_a_time"),
        removals=(unwrapped(),),
    ),
    Rule(
        slug="no-resend",
        name="what was sent without an answer is not sent again by the client",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_client_rules", "what_has_been_sent_is_not_sent_again"),
        removals=(preceded("if deadline.remaining_s:\n    return await self._answer(request, node_id, deadline)"),),
    ),
    Rule(
        slug="recreated-topic",
        name="a recreated topic stops the operator",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_opening", "a_topic_made_again_stops_the_operator"),
        removals=(condition("not (known := topic_id)"),),
    ),
    Rule(
        slug="topic-ids-checked",
        name="topic ids are compared before and after every batch is read",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_driver", "topic_ids_are_compared_before_and_after_a_batch_is_read"),
        removals=(deleted(),),
    ),
    Rule(
        slug="truncated-input",
        name="a truncated input stops the operator, also when it has grown again",
        chapter=Chapter.KAFKA,
        tests=tests(
            "runtime/test_truncation",
            "a_fetch_says_what_was_read_before_and_gives_the_leader_epoch_of_what_it_has_read",
            "where_what_was_read_is_no_longer_there_nothing_is_read",
            "an_end_below_what_was_read_is_a_truncation_and_so_is_one_of_its_leader_epoch",
            "a_driver_stops_when_its_input_ends_before_what_it_has_read",
            "a_task_that_meets_a_truncation_makes_the_driver_name_all_ranges",
            "a_plan_has_the_leader_epoch_of_what_was_read_and_the_log_keeps_it",
            "where_a_loss_was_accepted_the_former_leader_epoch_says_nothing",
        ),
        removals=(
            condition("(truncated := 0)", way="answer"),
            dropped("last_fetched_epoch=", way="asked"),
            dropped("found.base_offset < offset", way="epoch"),
            replaced("newest.epochs.get(partition, -1)", "-1", way="plan"),
            replaced("end < self.newest.offsets[topic].get(partition, 0)", "False", way="end"),
            dropped("partition not in ranges", way="skipped"),
            deleted(way="ranges"),
        ),
    ),
    Rule(
        slug="skip-keeps-leader-epoch",
        name="a skip back keeps the leader epoch of what is left, so that the next truncation is told as well",
        chapter=Chapter.KAFKA,
        tests=tests(
            "runtime/test_truncation",
            "the_leader_epoch_before_an_offset_is_that_of_the_record_there",
            "behind_a_skip_back_leader_epochs_tell_of_the_next_truncation_before_anything_was_read",
        ),
        removals=(
            dropped("epochs", way="passed"),
            argument("epochs", "others", way="kept"),
            condition("True", way="older"),
            condition("False", way="before-first"),
        ),
    ),
    Rule(
        slug="raised-offsets",
        name="what the input has at offsets that were read before a skip back gets offsets of its own in the log",
        chapter=Chapter.KAFKA,
        tests=(
            *tests(
                "state/test_raised_offsets",
                "offsets_of_the_log_are_never_used_twice_and_lead_back_to_the_input",
                "a_skip_back_raises_what_follows_and_a_skip_forward_does_not",
            ),
            *tests(
                "runtime/test_task",
                "a_record_at_an_offset_that_was_read_before_is_another_row",
                "where_a_bound_stops_the_partition_is_an_offset_of_the_input",
            ),
            *tests("runtime/test_publication", "dead_letters_name_offsets_of_the_input"),
        ),
        removals=(
            dropped("raised=", way="recorded"),
            replaced("fetched.records.raised(raised_now(plan.raised))", "fetched.records", way="records"),
            dropped("raised_now(plan.raised)", way="stopped"),
            value("_whole(letters['offset']).to_numpy()", way="dead-letters"),
            value("(reached, reached - end)", way="sum"),
        ),
    ),
    Rule(
        slug="same-partition",
        name="the output partition is the input partition",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_task", "emissions_go_to_the_partition_that_their_input_came_from"),
        removals=(replaced("to.partition", "0"),),
    ),
    Rule(
        slug="enough-output-partitions",
        name="the output, and the topic of dead letters, has at least as many partitions as the input",
        chapter=Chapter.KAFKA,
        tests=tests(
            "runtime/test_opening",
            "an_output_with_fewer_partitions_is_refused",
            "a_topic_of_dead_letters_with_fewer_partitions_is_refused",
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="same-input-partitions",
        name="an input with another number of partitions stops the operator",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_opening", "an_input_with_another_number_of_partitions_stops_the_operator"),
        removals=(condition("(had := len(before.offsets.get(config.input, {}))) is None"),),
    ),
    Rule(
        slug="kill-points",
        name="a kill point is at every place where a crash is dangerous",
        chapter=Chapter.KILL_POINTS,
        tests=(
            *tests("contracts/test_kill_points", "every_place_is_in_the_code"),
            *tests("runtime/test_driver", "a_driver_reaches_its_kill_points_in_order"),
        ),
        removals=(
            deleted(),
            dropped("after_half=", way="half"),
        ),
    ),
    Rule(
        slug="unreadable-batch-rejected",
        name="a record batch that cannot be read is one rejected row",
        chapter=Chapter.KAFKA,
        tests=(
            *tests(
                "kernels/test_record_batch",
                "a_batch_that_takes_more_than_it_may_is_one_row_and_the_records_around_it_are_read",
            ),
            *tests("kernels/test_record_batch", "a_batch_that_was_sent_damaged_is_one_row"),
            *tests(
                "operators/test_unreadable_batches", "a_batch_that_cannot_be_read_is_rejected_and_stops_no_good_record"
            ),
        ),
        removals=(
            instead("raise"),
            value("missing", way="row"),
        ),
    ),
)
