"""The Kafka client, the topics, and the kill points."""

from tests.rules.rule import Chapter, Rule, tests, without

_CLIENT, _OPENING, _DRIVER = "runtime/kafka/client", "runtime/batch_loop/preflight", "runtime/batch_loop/driver"

RULES = (
    Rule(
        name="every process has a client of its own, made after the fork",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_client_rules", "every_process_and_every_thread_has_a_client_of_its_own"),
        removals=(
            without(_CLIENT, "key = (os.getpid(), threading", "key = (0, threading"),
            without(_CLIENT, "threading.get_ident(), frozenset", "0, frozenset"),
        ),
    ),
    Rule(
        name="after a timeout the connections are closed",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_client_rules", "after_a_request_without_an_answer_all_connections_are_closed"),
        removals=(
            without(
                _CLIENT,
                "                self.close()\n            return answers",
                "                pass\n            return answers",
            ),
        ),
    ),
    Rule(
        name="one request of a client is under way at a time",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_client_rules", "one_call_of_a_client_is_under_way_at_a_time"),
        removals=(
            without(
                _CLIENT, "        with self._lock:\n            deadline", "        if True:\n            deadline"
            ),
        ),
    ),
    Rule(
        name="what was sent without an answer is not sent again by the client",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_client_rules", "what_has_been_sent_is_not_sent_again"),
        removals=(
            without(
                _CLIENT,
                "        except KafkaError as cause:\n            return Unavailable(",
                "        except KafkaError as cause:\n"
                "            if deadline.remaining_s:\n"
                "                return await self._answer(request, node_id, deadline)\n"
                "            return Unavailable(",
            ),
        ),
    ),
    Rule(
        name="a recreated topic stops the operator",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_opening", "a_topic_made_again_stops_the_operator"),
        removals=(
            without(
                _OPENING,
                "if (known := before.topics.get(topic)) not in (None, topic_id):",
                "if not (known := topic_id):",
            ),
        ),
    ),
    Rule(
        name="topic ids are compared before and after every batch is read",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_driver", "topic_ids_are_compared_before_and_after_a_batch_is_read"),
        removals=(
            without(_DRIVER, "        self._check_topics()\n        if any(end", "        if any(end"),
            without(_DRIVER, "self._check_topics()  # what was read is of these topics"),
        ),
    ),
    Rule(
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
            without("runtime/kafka/fetch", "if (truncated := _diverging(answer)) is not None:", "if truncated := 0:"),
            without(
                "runtime/kafka/fetch", "fetch_offset=position, last_fetched_epoch=epoch,", "fetch_offset=position,"
            ),
            without("runtime/kafka/fetch", "(found.base_offset < offset) & ", ""),
            without("runtime/batch_loop/planning", "epoch=newest.epochs.get(partition, -1),", "epoch=-1,"),
            without(_DRIVER, "if any(end < self.newest.offsets[topic].get(partition, 0) for", "if any(False for"),
            without("runtime/batch_loop/metadata", " if partition not in ranges}", "}"),
            without(_OPENING, "    ends |= {p: min(end, ends[p])", "    _ = {p: min(end, ends[p])"),
        ),
    ),
    Rule(
        name="a skip back keeps the leader epoch of what is left, so that the next truncation is told as well",
        chapter=Chapter.KAFKA,
        tests=tests(
            "runtime/test_truncation",
            "the_leader_epoch_before_an_offset_is_that_of_the_record_there",
            "behind_a_skip_back_leader_epochs_tell_of_the_next_truncation_before_anything_was_read",
        ),
        removals=(
            without(
                "runtime/repair/skip",
                "after_skip(claim, config.input, named, epochs)",
                "after_skip(claim, config.input, named)",
            ),
            without("runtime/batch_loop/metadata", "epochs={**others, **epochs},", "epochs=others,"),
            without("runtime/kafka/positions", "if older is None or older.end < offset:", "if True:"),
            without("runtime/kafka/positions", "if older.end == found.end:", "if False:"),
        ),
    ),
    Rule(
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
            without("runtime/batch_loop/metadata", "raised={**claim.raised, **raised},", ""),
            without("runtime/task/run", "fetched.records.raised(raised_now(plan.raised))", "fetched.records"),
            without("runtime/task/run", "step.stopped_at - raised_now(plan.raised)", "step.stopped_at"),
            without("runtime/publishing/encoding", "in_the_input(to.raised, ", "("),
            without("state/raised_offsets", "reached + raised_now(raised), raised_now(raised)", "reached, 0"),
        ),
    ),
    Rule(
        name="the output partition is the input partition",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_task", "emissions_go_to_the_partition_that_their_input_came_from"),
        removals=(
            without(
                "runtime/publishing/encoding",
                "parcel.topic,\n            to.partition,",
                "parcel.topic,\n            0,",
            ),
        ),
    ),
    Rule(
        name="the output, and the topic of dead letters, has at least as many partitions as the input",
        chapter=Chapter.KAFKA,
        tests=tests(
            "runtime/test_opening",
            "an_output_with_fewer_partitions_is_refused",
            "a_topic_of_dead_letters_with_fewer_partitions_is_refused",
        ),
        removals=(without(_OPENING, "if topic is not None and now.partitions[topic] < partitions:", "if False:"),),
    ),
    Rule(
        name="an input with another number of partitions stops the operator",
        chapter=Chapter.KAFKA,
        tests=tests("runtime/test_opening", "an_input_with_another_number_of_partitions_stops_the_operator"),
        removals=(without(_OPENING, "not in (0, partitions):", "is None:"),),
    ),
    Rule(
        name="a kill point is at every place where a crash is dangerous",
        chapter=Chapter.KILL_POINTS,
        tests=(
            *tests("contracts/test_kill_points", "every_place_is_in_the_code"),
            *tests("runtime/test_driver", "a_driver_reaches_its_kill_points_in_order"),
        ),
        removals=(
            without("runtime/batch_loop/claim", 'reach("after_claim")'),
            without("runtime/publishing/publication", 'reach("between_initialisations")'),
            without(_DRIVER, 'reach("before_commit")'),
            without(_DRIVER, 'reach("after_commit")'),
            without("runtime/publishing/publication", 'reach("between_ends")'),
            without("runtime/publishing/publication", 'reach("in_settling_before_end")'),
            without("runtime/publishing/encoding", 'after_half=lambda: reach("after_half_of_output"),', ""),
        ),
    ),
    Rule(
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
            without("kernels/record_format/record_decoder", "return 0, TOO_LARGE", "raise"),
            without("kernels/record_format/record_decoder", "return 0, BAD_COMPRESSION", "raise"),
            without(
                "operators/refusals",
                "np.where(records.unreadable > 0, records.unreadable + np.int8(NO_BATCH - 1), undecodable)",
                "undecodable",
            ),
        ),
    ),
)
