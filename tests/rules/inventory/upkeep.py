"""Compaction, retention and vacuum."""

from tests.rules.removals import argument, condition, deleted, dropped, instead, replaced, value
from tests.rules.rule import Chapter, Rule, tests

_RESCALE = "runtime/repair/test_rescale"

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
        name="a compaction is committed only if the table still has all files that it replaces",
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
        name="a compaction is marked as changing no data",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "a_compaction_is_one_commit_with_its_own_batch_that_changes_no_data"),
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
            "an_empty_state_leaves_no_file",
        ),
        removals=(value("rows"),),
    ),
    Rule(
        slug="window-at-least-an-hour",
        name="at least the last hour of versions can be read",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "nothing_is_deleted_inside_the_rewind_window"),
        removals=(replaced("max(rewind_window_ms, MIN_WINDOW_MS)", "rewind_window_ms"),),
    ),
    Rule(
        slug="clock-jump",
        name="a clock that jumps makes no new batch old",
        chapter=Chapter.UPKEEP,
        tests=(
            *tests(
                "state/test_protocol_decisions",
                "a_clock_that_was_not_set_or_ahead_makes_no_new_batch_old",
                "after_a_clock_jumps_back_no_batch_after_a_new_one_becomes_old",
            ),
            *tests(
                "state/test_compaction",
                "a_clock_that_jumps_drops_nothing_that_is_not_old",
                "an_entry_with_a_wrong_clock_does_not_trigger_a_clean_up",
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
            "state/test_compaction", "a_clean_up_deletes_a_bounded_part_and_every_version_of_the_window_stays_readable"
        ),
        removals=(value("behind"),),
    ),
    Rule(
        slug="restored-file-kept",
        name="a file that a later version restored is not deleted",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "a_file_that_a_later_version_restored_is_not_deleted"),
        removals=(dropped("not log.has_file(path)"),),
    ),
    Rule(
        slug="failed-attempt-files",
        name="files of a failed attempt are deleted by name",
        chapter=Chapter.UPKEEP,
        tests=(
            *tests("state/test_operator_log", "files_of_a_failed_attempt_are_deleted_by_name"),
            *tests("runtime/batch_loop/test_driver", "a_failed_attempt_leaves_neither_files_nor_open_transactions"),
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="failed-batch-files",
        name="a batch that fails before its entry is written leaves no files",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_operator_log", "a_batch_that_fails_before_its_log_entry_is_written_leaves_no_files"),
        removals=(replaced("delete_files(self.lake, [file.path for file in (*files, *records)])", "files"),),
    ),
    Rule(
        slug="orphans-after-a-week",
        name="files of an attempt without a driver are deleted after seven days",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction",
            "only_files_that_no_commit_named_are_deleted_after_seven_days",
            "a_file_that_may_still_be_committed_is_never_swept",
            "files_of_a_compaction_that_was_committed_as_a_later_batch_stay",
            "each_sweep_checks_a_bounded_number_of_files_and_all_are_found_eventually",
        ),
        removals=(
            dropped("_compacted", way="compacted"),
            dropped("sweep(log, oldest=oldest + len(deleted), clock_ms=clock_ms)", way="swept"),
            value("0", way="age"),
        ),
    ),
    Rule(
        slug="batch-history-rows",
        name="a compaction writes the metadata of the batches since the previous compaction into rows",
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
        name="an entry is kept until a row has its metadata",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction",
            "entries_without_a_metadata_row_are_kept",
            "batches_whose_entries_are_kept_for_a_row_cannot_be_read",
        ),
        removals=(
            replaced("document['batch'] > recorded", "False"),
            replaced("is_checkpointed(log, version)", "True", way="read"),
        ),
    ),
    Rule(
        slug="history-with-base",
        name="rows of metadata are dropped only together with all metadata that builds upon them",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "metadata_is_deleted_only_together_with_metadata_that_builds_upon_it"),
        removals=(value("expired"),),
    ),
    Rule(
        slug="checkpoint-complete",
        name="a foreign checkpoint does not count for clean-up unless its version's metadata is complete",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction", "a_checkpoint_of_a_different_program_does_not_delete_metadata_that_is_needed"
        ),
        removals=(dropped("is_complete(document)"),),
    ),
    Rule(
        slug="entry-being-written",
        name="an entry that is being written is not deleted as an orphan",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "unfinished_log_files_of_a_killed_driver_are_deleted"),
        removals=(replaced("found.written_ms <= clock_ms - MIN_AGE_MS", "True"),),
    ),
    Rule(
        slug="compaction-bounded",
        name="a background compaction rewrites a bounded part",
        chapter=Chapter.UPKEEP,
        tests=(
            *tests("state/test_compaction", "a_background_compaction_rewrites_a_bounded_part_and_later_ones_the_rest"),
            *tests("state/formats/test_mixed_files", "a_background_compaction_splits_a_bounded_part_as_a_whole"),
        ),
        removals=(
            value("whole.keys()", way="part"),
            value("sizes.keys()", way="own"),
            replaced("batch", "0", way="random"),
        ),
    ),
    Rule(
        slug="mixed-files-split",
        name="a compaction gives each kind and partition files of its own",
        chapter=Chapter.UPKEEP,
        tests=tests("state/formats/test_mixed_files", "a_compaction_gives_each_kind_and_partition_files_of_its_own"),
        removals=(value("()"),),
    ),
    Rule(
        slug="whole-files-replaced",
        name="a compaction removes a file only with all of its parts",
        chapter=Chapter.UPKEEP,
        tests=tests("state/formats/test_mixed_files", "a_file_is_never_removed_for_a_part_of_it"),
        removals=(replaced("parts != self._parts(path)", "False"),),
    ),
    Rule(
        slug="bounded-by-log-length",
        name="no work of a batch grows with the length of the log",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_length", "the_work_of_a_batch_does_not_grow_with_the_log"),
        removals=(
            condition("True", way="version"),
            replaced(
                "islice(documents_before(log.lake, log.version), LINEAGE_ENTRIES)",
                "documents_before(log.lake, log.version)",
                way="lineage",
            ),
            replaced("newest.clock - RECENT_MS", "0", way="status"),
        ),
    ),
    Rule(
        slug="rescale-by-partitioner",
        name="a key moves to the partition that Kafka's partitioner chooses, and only from where it had put it",
        chapter=Chapter.RESCALE,
        tests=tests(
            _RESCALE,
            "all_that_is_held_moves_to_the_partitions_of_its_keys_in_one_commit",
            "keys_that_the_partitioner_does_not_put_where_they_are_refuse_the_move",
        ),
        removals=(value("0", way="checked"), value("rows", way="moved")),
    ),
    Rule(
        slug="rescale-offsets-unique",
        name="no two rows of a partition have the same offset after a move",
        chapter=Chapter.RESCALE,
        tests=tests("laws/test_placement", "equal_offsets_of_several_sources_are_moved_up_and_order_stays"),
        removals=(value("whole[order]"),),
    ),
    Rule(
        slug="rescale-latest-time",
        name="a partition continues with the latest stream time of its sources",
        chapter=Chapter.RESCALE,
        tests=tests("laws/test_placement", "a_partition_has_the_latest_stream_time_of_its_sources"),
        removals=(replaced("max", "min"),),
    ),
    Rule(
        slug="rescale-offsets-above",
        name="records that are read after a move have larger offsets in the log than all rows",
        chapter=Chapter.RESCALE,
        tests=tests(
            _RESCALE, "new_partitions_begin_at_their_first_offset_with_the_time_and_above_the_offsets_of_their_source"
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="rescale-due-released",
        name="what becomes due by the latest time of the sources is released by the move",
        chapter=Chapter.RESCALE,
        tests=tests(_RESCALE, "what_a_merge_releases_is_output_of_its_batch"),
        removals=(value("None"),),
    ),
    Rule(
        slug="rescale-output-settled",
        name="a move begins when all output is published, and leaves none in question",
        chapter=Chapter.RESCALE,
        tests=tests(
            _RESCALE,
            "new_partitions_begin_at_their_first_offset_with_the_time_and_above_the_offsets_of_their_source",
            "output_that_may_not_be_published_refuses_a_change_without_the_former_topic",
        ),
        removals=(argument("output_batch", "-1", way="mark"), deleted(way="recreated")),
    ),
    Rule(
        slug="rescale-one-commit",
        name="a move replaces all state files in one commit",
        chapter=Chapter.RESCALE,
        tests=tests(_RESCALE, "all_that_is_held_moves_to_the_partitions_of_its_keys_in_one_commit"),
        removals=(replaced("replaced", "()"),),
    ),
    Rule(
        slug="rescale-checked",
        name="a move is committed only if the new files hold exactly what was held",
        chapter=Chapter.RESCALE,
        tests=tests(_RESCALE, "a_move_that_loses_a_row_is_not_committed_and_leaves_no_file"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="rescaled-table-noticed",
        name="a reader starts over when its table was rescaled",
        chapter=Chapter.RESCALE,
        tests=tests("runtime/batch_loop/test_table_pin", "a_running_reader_starts_over_when_its_table_was_rescaled"),
        removals=(deleted(),),
    ),
)
