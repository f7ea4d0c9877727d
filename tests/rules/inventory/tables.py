"""Tables that are read: pins, and the replicas that follow them."""

from tests.rules.rule import Chapter, Rule, tests, without

_PINS, _TASK, _DRIVER, _RECOVERY = "runtime/pins", "runtime/task", "runtime/driver", "state/recovery"

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
)
