"""Tables that are read: pins, and the replicas that follow them."""

from tests.rules.removals import argument, condition, deleted, dropped, instead, replaced, value
from tests.rules.rule import Chapter, Rule, tests

_LAW = tests("laws/test_alignment", "every_schedule_of_table_and_join_gives_the_same_join_in_the_same_order")

RULES = (
    Rule(
        slug="pin-newest",
        name="a batch is pinned to the newest version of its table",
        chapter=Chapter.TABLES,
        tests=tests("runtime/batch_loop/test_table_pin", "a_pin_is_the_newest_version_until_the_next_pin"),
        removals=(instead("break"),),
    ),
    Rule(
        slug="replica-catch-up",
        name="a replica that equals a commit of its lineage is caught up from the files that were added after it",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/batch_loop/test_table_pin",
            "a_replica_is_rebuilt_once_then_caught_up_from_what_commits_added",
            "a_returning_reader_catches_up_from_earlier_entries",
        ),
        removals=(
            dropped("lineage=", way="lineage"),
            deleted(way="tail"),
        ),
    ),
    Rule(
        slug="replica-deletes",
        name="no replica misses a delete because of a compaction of the table",
        chapter=Chapter.TABLES,
        tests=tests("runtime/batch_loop/test_table_pin", "a_replica_applies_deletes_that_a_compaction_removed"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="replica-vacuumed",
        name="a replica whose files were vacuumed is rebuilt",
        chapter=Chapter.TABLES,
        tests=tests("runtime/batch_loop/test_table_pin", "a_replica_whose_files_were_vacuumed_is_rebuilt"),
        removals=(replaced("source.lacks_files", "False"),),
    ),
    Rule(
        slug="replica-never-back",
        name="neither an older driver nor an older pin can move a replica backwards",
        chapter=Chapter.TABLES,
        tests=tests("runtime/batch_loop/test_table_pin", "an_older_reader_does_not_set_a_replica_back"),
        removals=(argument("batch", "2**62"),),
    ),
    Rule(
        slug="wait-for-table",
        name="a reader waits for a table that has no log yet",
        chapter=Chapter.TABLES,
        tests=tests("runtime/batch_loop/test_table_pin", "a_reader_waits_for_a_table_without_a_log"),
        removals=(replaced("Unavailable", "StateError"),),
    ),
    Rule(
        slug="table-partitions",
        name="a table with a different number of partitions is refused",
        chapter=Chapter.TABLES,
        tests=tests("runtime/batch_loop/test_table_pin", "different_numbers_of_partitions_are_refused"),
        removals=(deleted(),),
    ),
    Rule(
        slug="same-table",
        name="a reader stops if its table's log has a different table id than before, even while it runs",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/batch_loop/test_table_pin",
            "a_different_log_under_the_table_s_name_is_refused_at_start",
            "a_re_created_table_stops_its_reader",
            "readers_continue_with_a_table_restored_from_a_copy",
            "a_replica_is_never_built_from_a_different_log",
        ),
        removals=(
            deleted(),
            condition("False", way="running"),
        ),
    ),
    Rule(
        slug="table-not-older",
        name="a table's log that is older than its readers' last version, or changed by another program, stops them",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/batch_loop/test_table_pin",
            "a_log_older_than_its_readers_last_version_stops_them",
            "a_log_that_another_program_changed_stops_its_readers",
        ),
        removals=(
            condition("False", way="opened"),
            deleted(way="taken"),
        ),
    ),
    Rule(
        slug="optimize-keeps-metadata",
        name="a version that a foreign OPTIMIZE committed stands for the batch below it",
        chapter=Chapter.TABLES,
        tests=tests("runtime/batch_loop/test_table_pin", "a_pin_at_a_foreign_optimize_stands_for_the_batch_below_it"),
        removals=(replaced("change.get('dataChange', True)", "True"),),
    ),
    Rule(
        slug="table-keeps-for-readers",
        name="a table keeps the versions that its readers have yet to look up",
        chapter=Chapter.TABLES,
        tests=(
            *tests("operators/table_history/test_step", "versions_that_a_reader_needs_are_kept_until_it_has_moved_on"),
            *_LAW,
        ),
        removals=(replaced("min(stream_time - self._retention, self._needs)", "stream_time - self._retention"),),
    ),
    Rule(
        slug="due-after-table",
        name="a record is released once the table has read everything that was in its topic when the record was due",
        chapter=Chapter.TABLES,
        tests=(
            *tests(
                "operators/stream_table_join/test_step", "a_record_is_released_once_the_table_is_complete_for_its_time"
            ),
            *_LAW,
        ),
        removals=(replaced("state.time.place[0] > limits.open_until", "False"),),
    ),
    Rule(
        slug="gate-of-due",
        name="the gate opens only for records that were due before the end that the table has read",
        chapter=Chapter.TABLES,
        tests=tests(
            "state/test_alignment_decisions",
            "a_gate_opens_for_records_that_were_due_before_the_end_that_the_table_has_read",
            "a_gate_that_stays_closed_for_long_merges_entries_and_opens_no_earlier",
        ),
        removals=(replaced("has_read(read, self._due[0][1])", "True"),),
    ),
    Rule(
        slug="gate-of-each-topic",
        name="the gate of a table of several topics opens when the table has read each of them up to its end",
        chapter=Chapter.TABLES,
        tests=(
            *tests(
                "state/test_alignment_decisions",
                "a_gate_opens_when_each_topic_of_the_table_was_read_up_to_its_end",
            ),
            *tests(
                "runtime/batch_loop/test_table_stream_alignment",
                "a_table_of_two_topics_has_caught_up_when_it_has_read_both",
            ),
        ),
        removals=(replaced("all(offset >= end for offset, end in zip(read, ends, strict=False))", "read >= ends"),),
    ),
    Rule(
        slug="lease-before-pin",
        name="a reader writes its lease before its first pin",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/batch_loop/test_table_pin", "a_reader_writes_its_lease_before_the_first_pin_and_while_it_runs"
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="bad-lease-releases-nothing",
        name="a superseded driver's lease, or an unreadable one, releases no version",
        chapter=Chapter.TABLES,
        tests=tests(
            "state/test_alignment_decisions",
            "a_superseded_driver_s_lease_releases_no_version",
            "a_lease_round_trips_and_an_unreadable_lease_needs_everything",
        ),
        removals=(
            replaced(
                "NEVER if lease.epoch < epochs[reader][0] else lease.needs.get(partition, NEVER)",
                "lease.needs.get(partition, NEVER)",
                way="superseded",
            ),
            replaced("{}", "{0: 2**60}", way="unreadable"),
        ),
    ),
    Rule(
        slug="lease-expires",
        name="a lease older than the rewind window no longer counts",
        chapter=Chapter.TABLES,
        tests=tests("state/test_alignment_decisions", "a_lease_older_than_the_rewind_window_no_longer_counts"),
        removals=(dropped("lease.clock >= clock - rewind_window_ms"),),
    ),
    Rule(
        slug="hold-for-readers",
        name="at most hold_for_readers bytes are kept only for readers",
        chapter=Chapter.TABLES,
        tests=tests("operators/table_history/test_step", "more_than_hold_for_readers_is_given_up_and_counted"),
        removals=(deleted(),),
    ),
    Rule(
        slug="one-step-per-table",
        name="each table is read by one step of a pipeline at most",
        chapter=Chapter.TABLES,
        tests=tests("pipelines/test_joins", "each_table_is_read_by_one_step"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="step-reads-with-own-time",
        name="a step of a pipeline that stands behind others waits for its table with its own stream time",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/batch_loop/test_table_stream_alignment",
            "the_gate_of_a_step_behind_others_follows_the_time_of_that_step",
            "a_step_that_no_record_has_reached_opens_no_gate",
        ),
        removals=(value("partition.stream_time"),),
    ),
    Rule(
        slug="lease-covers-steps-before",
        name="a table keeps versions for what the steps before its reader may still pass on",
        chapter=Chapter.TABLES,
        tests=tests(
            "pipelines/test_joins",
            "the_table_keeps_versions_for_what_steps_before_the_join_hold",
            "the_table_keeps_versions_for_what_a_join_before_the_join_holds",
        ),
        removals=(value("[]"),),
    ),
    Rule(
        slug="lease-bound-covers-held",
        name="what a suppression before a reader says of its oldest record is never later than that record",
        chapter=Chapter.TABLES,
        tests=tests("operators/suppression/test_oldest", "what_stays_is_covered_round_after_round"),
        removals=(deleted(),),
    ),
    Rule(
        slug="table-before-stream",
        name="in a query over a stream and its table a batch takes the table's rows first",
        chapter=Chapter.TABLES,
        tests=tests("runtime/stream/test_joined_streams", "within_a_batch_the_rows_of_the_table_come_first"),
        removals=(dropped("F.desc('port')"),),
    ),
    Rule(
        slug="own-table-keeps-versions",
        name="a table in the pipeline of its join keeps what the join may still look up",
        chapter=Chapter.TABLES,
        tests=tests("pipelines/test_own_tables", "the_table_keeps_versions_while_the_stream_is_behind"),
        removals=(replaced("needs", "ALWAYS"),),
    ),
    Rule(
        slug="own-table-gate",
        name="a join with a table in its pipeline releases records up to the table's time less the grace",
        chapter=Chapter.TABLES,
        tests=tests(
            "pipelines/test_own_tables",
            "a_record_waits_for_the_table_and_leaves_in_a_batch_that_has_rows_of_the_table_alone",
        ),
        removals=(replaced("table.stream_time - own.grace", "ALWAYS"),),
    ),
    Rule(
        slug="own-table-floor",
        name="on a DataFrame versions that a table has dropped stay unknown, whatever its history is now",
        chapter=Chapter.TABLES,
        tests=tests("runtime/stream/test_decisions", "a_plan_has_the_floor_of_the_log"),
        removals=(value("{partition: None for partition in floors}"),),
    ),
    Rule(
        slug="windows-looked-up-plain",
        name="behind windows a table without windows is looked up by the plain key",
        chapter=Chapter.TABLES,
        tests=tests("pipelines/test_joins", "results_of_windows_are_joined_by_the_plain_key_and_keep_their_windows"),
        removals=(replaced("not self._table.windowed", "False", way="lookup"), value("False", way="conflict")),
    ),
    Rule(
        slug="expired-not-unmatched",
        name="a lookup of a dropped version is expired, never silently unmatched",
        chapter=Chapter.TABLES,
        tests=tests(
            "operators/stream_table_join/test_before_history",
            "lookups_before_the_history_are_expired_and_never_silently_unmatched",
            "an_inner_join_counts_expired_lookups",
        ),
        removals=(value("NONE"),),
    ),
    Rule(
        slug="stream-behind-history",
        name="a stream before its table's history stops the join",
        chapter=Chapter.TABLES,
        tests=tests(
            "operators/stream_table_join/test_before_history",
            "a_stream_that_begins_before_the_table_s_history_stops_with_the_remedies",
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="replica-floor",
        name="a replica is read with the floor of its pin",
        chapter=Chapter.TABLES,
        tests=tests("runtime/batch_loop/test_table_pin", "a_replica_is_read_with_the_floor_of_the_pin"),
        removals=(dropped("floor="),),
    ),
    Rule(
        slug="waiting-bounded",
        name="while 64 MiB wait for the table in a partition, its stream is not read",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/batch_loop/test_table_stream_alignment",
            "with_64_mib_waiting_a_partition_pauses_reading_the_stream",
        ),
        removals=(replaced("used.waiting_bytes >= MOST_WAITING_BYTES", "False"),),
    ),
    Rule(
        slug="idle-due-waits",
        name="records due by an idle advance wait for an end of the table's topic that is read after it",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/batch_loop/test_table_stream_alignment",
            "records_due_by_an_idle_advance_wait_for_a_later_end_of_the_table_s_topic",
        ),
        removals=(
            dropped("plan.action != 'idle'", way="gate"),
            condition("True", way="ends"),
        ),
    ),
)
