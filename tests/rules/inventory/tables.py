"""Tables that are read: pins, and the replicas that follow them."""

from tests.rules.rule import Chapter, Rule, tests, without

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
        name="a batch is pinned to the newest version of its table",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "a_pin_is_the_newest_version_and_stands_until_the_next"),
        removals=(without(_PINS, "self._stand_at(self.version + 1)", "break"),),
    ),
    Rule(
        name="a replica that equals a commit of its lineage is caught up from the files that were added after it",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/test_pins",
            "a_replica_is_rebuilt_once_then_caught_up_from_what_commits_added",
            "a_reader_that_comes_back_catches_up_from_earlier_entries",
        ),
        removals=(
            without(_PINS, "lineage=tuple(added.commit for added in tail),", ""),
            without(_PINS, "self._remember_entries_before(version)"),
        ),
    ),
    Rule(
        name="a compaction of the table makes no replica miss a delete",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "a_replica_goes_through_a_compaction_that_forgets_deletes"),
        removals=(
            without(
                _RECOVERY, "if use.way is Way.CATCH_UP and tail is not None:\n        files", "if False:\n        files"
            ),
        ),
    ),
    Rule(
        name="a replica whose files were vacuumed is rebuilt",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "a_replica_whose_files_were_vacuumed_is_rebuilt"),
        removals=(without(_RECOVERY, "and not all((log / file.path).exists() for file in tail)", "and False"),),
    ),
    Rule(
        name="neither an older driver nor an older pin sets a replica back",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "an_older_reader_does_not_set_a_replica_back"),
        removals=(without(_PINS, "batch=meta.batch,\n", "batch=2**62,\n"),),
    ),
    Rule(
        name="a reader waits for a table that has no log yet",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "a_table_without_a_log_is_waited_for"),
        removals=(without(_PINS, "raise Unavailable(", "raise StateError("),),
    ),
    Rule(
        name="a table of another number of partitions is refused",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "different_numbers_of_partitions_are_refused"),
        removals=(without(_PINS, "self._refuse_other_partitions(meta, newest)"),),
    ),
    Rule(
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
            without(_PINS, "self._refuse_another(meta.table_id, read.table_id)"),
            without(_PINS, 'self._refuse_another(document["table_id"], self.meta.table_id)'),
            without(_PINS, "if self._print is None or print_of(self.path, self.version) != self._print:", "if False:"),
            without(_RECOVERY, "_refuse_another(log, table_id)\n    if", "if"),
        ),
    ),
    Rule(
        name="a log older than what was read of it, or changed by somebody else stops its readers",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/test_pins",
            "a_log_older_than_what_was_read_of_it_stops",
            "a_log_that_somebody_else_changed_stops_its_readers",
        ),
        removals=(
            without(_PINS, "if read is not None and version < read.version:", "if False:"),
            without(_PINS, "self._refuse_foreign(actions)"),
        ),
    ),
    Rule(
        name="a version of the table that somebody's OPTIMIZE has put says what the batch below it says",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "a_pin_at_somebody_s_optimize_says_what_the_batch_below_it_says"),
        removals=(without(_PINS, 'change.get("dataChange", True) for', "True for"),),
    ),
    Rule(
        name="a table keeps what its readers have yet to look up",
        chapter=Chapter.TABLES,
        tests=(
            *tests(
                "operators/table_history/test_step", "versions_that_a_reader_needs_stay_and_go_when_it_has_moved_on"
            ),
            *_LAW,
        ),
        removals=(
            without(
                f"{_HISTORY}/state", "min(stream_time - self._retention, self._needs)", "stream_time - self._retention"
            ),
        ),
    ),
    Rule(
        name="a record leaves once the table has read what was in its topic when the record was due",
        chapter=Chapter.TABLES,
        tests=(
            *tests("operators/stream_table_join/test_step", "a_record_leaves_once_the_table_is_complete_for_its_time"),
            *_LAW,
        ),
        removals=(without(f"{_JOIN}/step", "state.time.place[0] > moment.open_until and", "False and"),),
    ),
    Rule(
        name="the gate opens up to what was due before the end that the table has read, and no further",
        chapter=Chapter.TABLES,
        tests=tests(
            "state/test_alignment",
            "a_gate_opens_up_to_what_was_due_before_the_end_that_the_table_has_read",
            "a_gate_that_stays_shut_for_long_remembers_less_and_opens_no_earlier",
        ),
        removals=(without(_ALIGNMENT, "self._due[0][1] <= offset", "True"),),
    ),
    Rule(
        name="a reader tells its table what it needs before its first pin",
        chapter=Chapter.TABLES,
        tests=tests(
            "runtime/test_pins", "the_table_is_told_what_its_reader_needs_before_the_first_pin_and_while_it_runs"
        ),
        removals=(without(_PINS, "self.lease.first(newest, clock_ms)"),),
    ),
    Rule(
        name="a superseded driver's lease, and one that cannot be read, let nothing go",
        chapter=Chapter.TABLES,
        tests=tests(
            "state/test_alignment",
            "a_superseded_driver_s_lease_lets_nothing_go",
            "a_lease_is_read_as_it_was_written_and_what_is_no_lease_needs_everything",
        ),
        removals=(
            without(_ALIGNMENT, "NEVER if lease.epoch < epochs[reader][0] else lease.needs", "lease.needs"),
            without("state/leases", "return Lease(0, clock, {})", "return Lease(0, clock, {0: 2**60})"),
        ),
    ),
    Rule(
        name="a lease older than the rewind window no longer counts",
        chapter=Chapter.TABLES,
        tests=tests("state/test_alignment", "a_lease_older_than_the_rewind_window_no_longer_counts"),
        removals=(without(_ALIGNMENT, "if lease.clock >= clock - rewind_window_ms", ""),),
    ),
    Rule(
        name="no more than hold_for_readers is kept for readers alone",
        chapter=Chapter.TABLES,
        tests=tests("operators/table_history/test_step", "more_than_hold_for_readers_is_given_up_and_counted"),
        removals=(without(f"{_HISTORY}/state", "self._give_up(due, outcome)"),),
    ),
    Rule(
        name="what a table no longer knows is expired, never silently unmatched",
        chapter=Chapter.TABLES,
        tests=tests(
            "operators/stream_table_join/test_before_history",
            "what_the_history_no_longer_answers_is_expired_and_never_silently_unmatched",
            "an_inner_join_counts_what_is_expired",
        ),
        removals=(
            without(
                f"{_JOIN}/step",
                "return EXPIRED_VERSION if records.timestamp[row] < versions",
                "return NONE if 0 < versions",
            ),
        ),
    ),
    Rule(
        name="a stream that stands before the history of its table stops the join",
        chapter=Chapter.TABLES,
        tests=tests(
            "operators/stream_table_join/test_before_history",
            "a_stream_that_begins_before_the_history_of_its_table_stops_with_the_ways_on",
        ),
        removals=(without(f"{_JOIN}/step", "return BEFORE_HISTORY", "pass"),),
    ),
    Rule(
        name="a replica is read with the floor of its pin",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_pins", "a_replica_is_read_with_the_floor_of_the_pin"),
        removals=(without(_PINS, "floor=meta.floor.get(partition),", ""),),
    ),
    Rule(
        name="with 64 MiB waiting for its table no more of the stream is read in a partition",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_alignment", "with_64_mib_waiting_no_more_of_the_stream_is_read_in_that_partition"),
        removals=(without(_DRIVERS, "if used.waiting_bytes >= MOST_WAITING_BYTES", "if False"),),
    ),
    Rule(
        name="what an idle advance makes due waits for an end of the table's topic that is read after it",
        chapter=Chapter.TABLES,
        tests=tests("runtime/test_alignment", "what_an_idle_advance_makes_due_waits_for_an_end_that_is_read_after_it"),
        removals=(
            without(_DRIVERS, 'plan.action != "idle" and ', ""),
            without(_DRIVERS, 'if result.action == "batch":', "if True:"),
        ),
    ),
)
