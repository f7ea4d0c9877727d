"""Compaction, retention and vacuum."""

from tests.rules.rule import Chapter, Rule, tests, without

_COMPACTION, _CLEANUP, _ORPHANS = "state/upkeep/compaction", "state/upkeep/cleanup", "state/upkeep/orphans"

RULES = (
    Rule(
        name="a compaction replaces exactly the files that were read",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction",
            "a_snapshot_keeps_the_last_put_of_each_slot_with_its_batch_and_seq",
            "output_and_metadata_are_merged_and_every_row_stays",
        ),
        removals=(
            without(_COMPACTION, "replaces=part.files,", "replaces=part.files[:-1],"),
            without(
                _COMPACTION,
                "log.commit(meta, files, replaces, prepared.records)",
                "log.commit(meta, files, (), prepared.records)",
            ),
        ),
    ),
    Rule(
        name="a compaction is committed while the table has all files that it replaces, else not at all",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction",
            "an_optimize_by_others_at_any_moment_of_a_compaction_doubles_and_loses_no_row",
            "a_compaction_whose_files_are_gone_leaves_no_file",
        ),
        removals=(
            without("state/delta_log/operator_log", "self._refuse_outdated(meta, replaces)\n        while", "while"),
            without(
                "state/delta_log/operator_log",
                "self._refuse_outdated(meta, replaces)\n        return self.version + 1",
                "return self.version + 1",
            ),
            without(_COMPACTION, "delete_files(log.path, meta.batch, meta.attempt, [*files, *prepared.records])"),
        ),
    ),
    Rule(
        name="a compaction says that it changes no data",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "a_compaction_is_one_commit_with_a_batch_of_its_own_that_changes_no_data"),
        removals=(
            without("state/delta_log/operator_log", "changes_data=not replaces)", "changes_data=True)"),
            without("state/delta_log/actions", '"dataChange": False,', '"dataChange": True,'),
        ),
    ),
    Rule(
        name="a snapshot keeps the live rows, with their batch and seq",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction",
            "a_snapshot_keeps_the_last_put_of_each_slot_with_its_batch_and_seq",
            "a_state_that_is_empty_leaves_no_file",
        ),
        removals=(without(_COMPACTION, "return live_rows(rows, part.slot)", "return rows"),),
    ),
    Rule(
        name="at least the last hour of versions can be read",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "inside_the_rewind_window_nothing_goes"),
        removals=(without(_CLEANUP, "max(rewind_window_ms, MIN_WINDOW_MS)", "rewind_window_ms"),),
    ),
    Rule(
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
            without("state/decisions", "if FIRST_CLOCK_MS <= clock <= now:", "if clock <= now:"),
            without("state/decisions", "if FIRST_CLOCK_MS <= clock <= now:", "if FIRST_CLOCK_MS <= clock:"),
            without(
                "state/decisions",
                "                break\n            newest = place",
                "                continue\n            newest = place",
            ),
        ),
    ),
    Rule(
        name="every version of the rewind window can be read",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction", "a_clean_up_takes_a_bounded_part_and_every_version_of_the_window_stays_readable"
        ),
        removals=(
            without(
                _CLEANUP,
                "first = _checkpoint_before(log.path, oldest, behind if pinned is None else min(behind, pinned))",
                "first = behind",
            ),
        ),
    ),
    Rule(
        name="a file that a later version brought back is not deleted",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "a_file_that_a_later_version_brought_back_is_not_deleted"),
        removals=(
            without(
                _CLEANUP, "if not log.has_file(path) and (log.path / path).exists()]", "if (log.path / path).exists()]"
            ),
        ),
    ),
    Rule(
        name="files of a failed attempt are deleted by name",
        chapter=Chapter.UPKEEP,
        tests=(
            *tests("state/test_operator_log", "files_of_a_failed_attempt_are_deleted_by_name"),
            *tests("runtime/test_driver", "a_failed_attempt_leaves_neither_files_nor_open_transactions"),
        ),
        removals=(
            without("runtime/batch_loop/driver", "delete_attempt(self._log.path, self.newest.batch + 1, attempt)"),
            without("state/delta_log/data_files", "            path.unlink(missing_ok=True)\n", "            pass\n"),
        ),
    ),
    Rule(
        name="a batch that fails before its entry is put leaves no files",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_operator_log", "a_batch_that_fails_before_its_entry_is_put_leaves_no_files"),
        removals=(
            without(
                "state/delta_log/operator_log",
                "delete_files(self.path, meta.batch, meta.attempt, [*files,",
                "([*files,",
            ),
        ),
    ),
    Rule(
        name="files of an attempt whose driver is gone are deleted after seven days",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction",
            "files_that_no_commit_named_go_after_seven_days_and_no_others",
            "a_file_that_may_still_be_committed_is_never_swept",
            "files_of_a_compaction_that_was_committed_as_a_later_batch_stay",
        ),
        removals=(
            without(_ORPHANS, "for tell in (_batch, _compacted)}", "for tell in (_batch,)}"),
            without(_CLEANUP, " + sweep(log, oldest=oldest + len(deleted), clock_ms=clock_ms)", ""),
            without(_ORPHANS, "MIN_AGE_MS = 7 * 24 * 3_600_000", "MIN_AGE_MS = 0"),
        ),
    ),
    Rule(
        name="a compaction writes the metadata of the batches since the one before into rows",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction",
            "a_compaction_writes_the_metadata_of_the_batches_before_it_into_rows",
            "output_and_metadata_are_merged_and_every_row_stays",
        ),
        removals=(
            without(
                _COMPACTION, "log.commit(meta, files, replaces, prepared.records)", "log.commit(meta, files, replaces)"
            ),
            without(
                "state/upkeep/batch_history",
                "range(max(recorded, after_batch) + 1, meta.batch)",
                "range(after_batch + 1, meta.batch)",
            ),
        ),
    ),
    Rule(
        name="an entry stays until a row has its metadata",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "entries_whose_metadata_is_in_no_row_stay"),
        removals=(without(_CLEANUP, 'document["batch"] > recorded:', "False:"),),
    ),
    Rule(
        name="rows of metadata go only together with all that builds upon them",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "metadata_goes_only_together_with_what_builds_upon_it"),
        removals=(without(_COMPACTION, "min(expired, kept_from(log, expired + 1) - 1)", "expired"),),
    ),
    Rule(
        name="a checkpoint of others bounds no clean-up if its version's metadata is not complete",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "a_checkpoint_of_others_does_not_let_metadata_go_that_is_needed"),
        removals=(without(_CLEANUP, " and _is_complete(log, at))", ")"),),
    ),
    Rule(
        name="an entry that is being written is not swept",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_compaction", "what_a_killed_driver_was_about_to_put_into_the_log_goes"),
        removals=(
            without(
                _ORPHANS, "if written is not None and written <= clock_ms - MIN_AGE_MS:", "if written is not None:"
            ),
        ),
    ),
    Rule(
        name="a compaction beside batches rewrites a bounded part",
        chapter=Chapter.UPKEEP,
        tests=tests(
            "state/test_compaction", "a_compaction_beside_batches_takes_a_bounded_part_and_the_next_ones_the_others"
        ),
        removals=(
            without(_COMPACTION, "return parts if held is None else _of_a_turn(parts, meta.batch)", "return parts"),
            without(_COMPACTION, "random.Random(batch)", "random.Random(0)"),
        ),
    ),
    Rule(
        name="no work grows with the length of the log",
        chapter=Chapter.UPKEEP,
        tests=tests("state/test_length", "the_work_is_the_same_at_ten_times_the_length"),
        removals=(
            without(
                "state/delta_log/log_entries", "if known is None or not entry_path(log, known).exists():", "if True:"
            ),
            without(
                "state/batch_metadata",
                "islice(documents_before(log.path, log.version), LINEAGE_ENTRIES)",
                "documents_before(log.path, log.version)",
            ),
            without(
                "cli/operate/status",
                "before, *recent = since(log, newest.clock - RECENT_MS)",
                "before, *recent = since(log, 0)",
            ),
        ),
    ),
    Rule(
        name="the log keeps the versions that joins have pinned",
        chapter=Chapter.UPKEEP,
        later="issue C",
    ),
    Rule(
        name="a join stops when the version that it needs is gone",
        chapter=Chapter.UPKEEP,
        later="issue C",
    ),
    Rule(
        name="a history's replica skips compactions",
        chapter=Chapter.UPKEEP,
        later="issue C",
    ),
    Rule(
        name="a replica of another table, epoch or version is rebuilt at the pinned version",
        chapter=Chapter.UPKEEP,
        later="issue C",
    ),
    Rule(
        name="expiry in a replica goes by the history's stream time at the pinned commit",
        chapter=Chapter.UPKEEP,
        later="issue C",
    ),
)
