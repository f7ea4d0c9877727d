"""Tables that are read: pins, and the replicas that follow them."""

from tests.rules.removals import argument, condition, deleted, dropped, instead, replaced, value
from tests.rules.rule import Chapter, Rule, tests

_PINS, _TASK, _DRIVER, _RECOVERY = (
    "runtime/batch_loop/table_pin",
    "runtime/task/run",
    "runtime/batch_loop/driver",
    "state/local/recovery",
)
_ALIGNMENT, _HISTORY, _JOIN = "state/alignment", "operators/table_history", "operators/stream_table_join"
_DRIVERS, _LAW = (
    "runtime/batch_loop/alignment",
    tests("laws/test_alignment", "every_schedule_of_table_and_join_gives_the_same_join_in_the_same_order"),
)

RULES = (
    Rule(
        slug="pin-newest",
        name="a batch is pinned to the newest version of its table",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "a_pin_is_the_newest_version_and_stands_until_the_next"),
        removals=(instead("break"),),
    ),
    Rule(
        slug="replica-catch-up",
        name="a replica that equals a commit of its lineage is caught up from the files that were added after it",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/test_pins",
            "a_replica_is_rebuilt_once_then_caught_up_from_what_commits_added",
            "a_reader_that_comes_back_catches_up_from_earlier_entries",
        ),
        removals=(
            dropped("lineage=", way="lineage"),
            deleted(way="tail"),
        ),
    ),
    Rule(
        slug="replica-deletes",
        name="a compaction of the table makes no replica miss a delete",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "a_replica_goes_through_a_compaction_that_forgets_deletes"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="replica-vacuumed",
        name="a replica whose files were vacuumed is rebuilt",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "a_replica_whose_files_were_vacuumed_is_rebuilt"),
        removals=(replaced("source.lacks_files", "False"),),
    ),
    Rule(
        slug="replica-never-back",
        name="neither an older driver nor an older pin sets a replica back",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "an_older_reader_does_not_set_a_replica_back"),
        removals=(argument("batch", "2**62"),),
    ),
    Rule(
        slug="wait-for-table",
        name="a reader waits for a table that has no log yet",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "a_table_without_a_log_is_waited_for"),
        removals=(replaced("Unavailable", "StateError"),),
    ),
    Rule(
        slug="table-partitions",
        name="a table of another number of partitions is refused",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "different_numbers_of_partitions_are_refused"),
        removals=(deleted(),),
    ),
    Rule(
        slug="same-table",
        name="a reader stops when its table's log is another one, by the table id of what was read, while it runs too",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/test_pins",
            "another_log_under_the_table_s_name_is_refused_at_start",
            "a_table_begun_anew_under_its_reader_stops_it",
            "a_table_that_was_brought_back_from_a_copy_is_read_on",
            "a_replica_is_never_made_of_another_log",
        ),
        removals=(
            deleted(),
            condition("False", way="running"),
        ),
    ),
    Rule(
        slug="table-not-older",
        name="a log older than what was read of it, or changed by somebody else stops its readers",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/test_pins",
            "a_log_older_than_what_was_read_of_it_stops",
            "a_log_that_somebody_else_changed_stops_its_readers",
        ),
        removals=(
            condition("False", way="opened"),
            deleted(way="taken"),
        ),
    ),
    Rule(
        slug="optimize-keeps-metadata",
        name="a version of the table that somebody's OPTIMIZE has put says what the batch below it says",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "a_pin_at_somebody_s_optimize_says_what_the_batch_below_it_says"),
        removals=(replaced("change.get('dataChange', True)", "True"),),
    ),
    Rule(
        slug="table-keeps-for-readers",
        name="a table keeps what its readers have yet to look up",
        chapter=Chapter.TABLES,
        tests=(
            *tests(
                "operators/table_history/test_step", "versions_that_a_reader_needs_stay_and_go_when_it_has_moved_on"
            ),
            *_LAW,
        ),
        removals=(replaced("min(stream_time - self._retention, self._needs)", "stream_time - self._retention"),),
    ),
    Rule(
        slug="due-after-table",
        name="a record leaves once the table has read what was in its topic when the record was due",
        chapter=Chapter.TABLES,
        tests=(
            *tests("operators/stream_table_join/test_step", "a_record_leaves_once_the_table_is_complete_for_its_time"),
            *_LAW,
        ),
        removals=(replaced("state.time.place[0] > limits.open_until", "False"),),
    ),
    Rule(
        slug="gate-of-due",
        name="the gate opens up to what was due before the end that the table has read, and no further",
        chapter=Chapter.TABLES,
        tests=tests(
            "state/test_alignment",
            "a_gate_opens_up_to_what_was_due_before_the_end_that_the_table_has_read",
            "a_gate_that_stays_shut_for_long_remembers_less_and_opens_no_earlier",
        ),
        removals=(replaced("self._due[0][1] <= offset", "True"),),
    ),
    Rule(
        slug="lease-before-pin",
        name="a reader tells its table what it needs before its first pin",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/test_pins", "the_table_is_told_what_its_reader_needs_before_the_first_pin_and_while_it_runs"
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="lease-lets-nothing-go",
        name="a superseded driver's lease, and one that cannot be read, let nothing go",
        chapter=Chapter.TABLES,
        tests=tests(
            "state/test_alignment",
            "a_superseded_driver_s_lease_lets_nothing_go",
            "a_lease_is_read_as_it_was_written_and_what_is_no_lease_needs_everything",
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
        tests=tests("state/test_alignment", "a_lease_older_than_the_rewind_window_no_longer_counts"),
        removals=(dropped("lease.clock >= clock - rewind_window_ms"),),
    ),
    Rule(
        slug="hold-for-readers",
        name="no more than hold_for_readers is kept for readers alone",
        chapter=Chapter.TABLES,
        tests=tests("operators/table_history/test_step", "more_than_hold_for_readers_is_given_up_and_counted"),
        removals=(deleted(),),
    ),
    Rule(
        slug="expired-not-unmatched",
        name="what a table no longer knows is expired, never silently unmatched",
        chapter=Chapter.TABLES,
        tests=tests(
            "operators/stream_table_join/test_before_history",
            "what_the_history_no_longer_answers_is_expired_and_never_silently_unmatched",
            "an_inner_join_counts_what_is_expired",
        ),
        removals=(value("NONE"),),
    ),
    Rule(
        slug="stream-behind-history",
        name="a stream that stands before the history of its table stops the join",
        chapter=Chapter.TABLES,
        tests=tests(
            "operators/stream_table_join/test_before_history",
            "a_stream_that_begins_before_the_history_of_its_table_stops_with_the_ways_on",
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="replica-floor",
        name="a replica is read with the floor of its pin",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "a_replica_is_read_with_the_floor_of_the_pin"),
        removals=(dropped("floor="),),
    ),
    Rule(
        slug="waiting-bounded",
        name="with 64 MiB waiting for its table no more of the stream is read in a partition",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_alignment", "with_64_mib_waiting_no_more_of_the_stream_is_read_in_that_partition"),
        removals=(replaced("used.waiting_bytes >= MOST_WAITING_BYTES", "False"),),
    ),
    Rule(
        slug="idle-due-waits",
        name="what an idle advance makes due waits for an end of the table's topic that is read after it",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_alignment", "what_an_idle_advance_makes_due_waits_for_an_end_that_is_read_after_it"),
        removals=(
            dropped("plan.action != 'idle'", way="gate"),
            condition("True", way="ends"),
        ),
    ),
)
