"""Compaction, retention and vacuum."""

from tests.rules.removals import argument, condition, deleted, dropped, instead, replaced, value
from tests.rules.rule import Chapter, Rule, tests

_COMPACTION, _CLEANUP, _ORPHANS = "state/upkeep/compaction", "state/upkeep/cleanup", "state/upkeep/orphans"

RULES = (
    Rule(
        slug="compaction-replaces-read",
        name="a compaction replaces exactly the files that were read",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction",
            "a_snapshot_keeps_the_last_put_of_each_slot_with_its_batch_and_seq",
            "output_and_metadata_are_merged_and_every_row_stays",
        ),
        removals=(
            argument("replaces", "part.files[:-1]", way="files"),
            replaced("replaces", "()", way="entry"),
        ),
    ),
    Rule(
        slug="compaction-not-outdated",
        name="a compaction is committed while the table has all files that it replaces, else not at all",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction",
            "an_optimize_by_others_at_any_moment_of_a_compaction_doubles_and_loses_no_row",
            "a_compaction_whose_files_are_gone_leaves_no_file",
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="compaction-changes-no-data",
        name="a compaction says that it changes no data",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "a_compaction_is_one_commit_with_a_batch_of_its_own_that_changes_no_data"),
        removals=(
            argument("changes_data", "True", way="added"),
            replaced("False", "True", way="removed"),
        ),
    ),
    Rule(
        slug="snapshot-live-rows",
        name="a snapshot keeps the live rows, with their batch and seq",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction",
            "a_snapshot_keeps_the_last_put_of_each_slot_with_its_batch_and_seq",
            "a_state_that_is_empty_leaves_no_file",
        ),
        removals=(value("rows"),),
    ),
    Rule(
        slug="window-at-least-an-hour",
        name="at least the last hour of versions can be read",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "inside_the_rewind_window_nothing_goes"),
        removals=(replaced("max(rewind_window_ms, MIN_WINDOW_MS)", "rewind_window_ms"),),
    ),
    Rule(
        slug="clock-jump",
        name="a clock that jumps makes nothing old that is not",
        chapter=Chapter.UPKEEP,
        tests=(
            *tests(
                "state/test_decisions",
                "while_a_clock_was_not_set_or_ahead_nothing_young_becomes_old",
                "where_a_clock_jumps_back_nothing_becomes_old_that_follows_something_young",
            ),
            *tests(
                "state/test_compaction",
                "a_clock_that_jumps_drops_nothing_that_is_not_old",
                "an_entry_from_a_time_of_a_wrong_clock_is_no_reason_for_a_clean_up",
            ),
        ),
        removals=(
            condition("clock <= now", way="clock"),
            condition("FIRST_CLOCK_MS <= clock", way="clock"),
            instead("continue", way="earlier"),
        ),
    ),
    Rule(
        slug="window-readable",
        name="every version of the rewind window can be read",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction", "a_clean_up_takes_a_bounded_part_and_every_version_of_the_window_stays_readable"
        ),
        removals=(value("behind"),),
    ),
    Rule(
        slug="restored-file-kept",
        name="a file that a later version brought back is not deleted",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "a_file_that_a_later_version_brought_back_is_not_deleted"),
        removals=(dropped("not log.has_file(path)"),),
    ),
    Rule(
        slug="failed-attempt-files",
        name="files of a failed attempt are deleted by name",
        chapter=Chapter.UPKEEP,
        tests=(
            *tests("state/test_operator_log", "files_of_a_failed_attempt_are_deleted_by_name"),
            *tests("runtime/test_driver", "a_failed_attempt_leaves_neither_files_nor_open_transactions"),
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="failed-batch-files",
        name="a batch that fails before its entry is put leaves no files",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_operator_log", "a_batch_that_fails_before_its_entry_is_put_leaves_no_files"),
        removals=(
            replaced("delete_files(self.path, meta.batch, meta.attempt, [*files, *records])", "[*files, *records]"),
        ),
    ),
    Rule(
        slug="orphans-after-a-week",
        name="files of an attempt whose driver is gone are deleted after seven days",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction",
            "files_that_no_commit_named_go_after_seven_days_and_no_others",
            "a_file_that_may_still_be_committed_is_never_swept",
            "files_of_a_compaction_that_was_committed_as_a_later_batch_stay",
        ),
        removals=(
            dropped("_compacted", way="compacted"),
            dropped("sweep(log, oldest=oldest + len(deleted), clock_ms=clock_ms)", way="swept"),
            value("0", way="age"),
        ),
    ),
    Rule(
        slug="batch-history-rows",
        name="a compaction writes the metadata of the batches since the one before into rows",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction",
            "a_compaction_writes_the_metadata_of_the_batches_before_it_into_rows",
            "output_and_metadata_are_merged_and_every_row_stays",
        ),
        removals=(
            dropped("prepared.records", way="entry"),
            replaced("max(recorded, after_batch)", "after_batch", way="since"),
        ),
    ),
    Rule(
        slug="entry-until-row",
        name="an entry stays until a row has its metadata",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "entries_whose_metadata_is_in_no_row_stay"),
        removals=(replaced("document['batch'] > recorded", "False"),),
    ),
    Rule(
        slug="history-with-base",
        name="rows of metadata go only together with all that builds upon them",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "metadata_goes_only_together_with_what_builds_upon_it"),
        removals=(value("expired"),),
    ),
    Rule(
        slug="checkpoint-complete",
        name="a checkpoint of others bounds no clean-up if its version's metadata is not complete",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "a_checkpoint_of_others_does_not_let_metadata_go_that_is_needed"),
        removals=(dropped("_is_complete(log, at)"),),
    ),
    Rule(
        slug="entry-being-written",
        name="an entry that is being written is not swept",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "what_a_killed_driver_was_about_to_put_into_the_log_goes"),
        removals=(dropped("written <= clock_ms - MIN_AGE_MS"),),
    ),
    Rule(
        slug="compaction-bounded",
        name="a compaction beside batches rewrites a bounded part",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction", "a_compaction_beside_batches_takes_a_bounded_part_and_the_next_ones_the_others"
        ),
        removals=(
            value("parts", way="part"),
            replaced("batch", "0", way="random"),
        ),
    ),
    Rule(
        slug="bounded-by-log-length",
        name="no work grows with the length of the log",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_length", "the_work_is_the_same_at_ten_times_the_length"),
        removals=(
            condition("True", way="version"),
            replaced(
                "islice(documents_before(log.path, log.version), LINEAGE_ENTRIES)",
                "documents_before(log.path, log.version)",
                way="lineage",
            ),
            replaced("newest.clock - RECENT_MS", "0", way="status"),
        ),
    ),
)
