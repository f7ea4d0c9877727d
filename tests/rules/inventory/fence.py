"""The fence in Delta: who may commit, and what is refused at start."""

from tests.rules.removals import argument, condition, deleted, dropped, followed, instead, preceded, replaced, value
from tests.rules.rule import Chapter, Rule, tests

RULES = (
    Rule(
        slug="handle-at-own-commit",
        name="the handle stays at the driver's own last commit",
        chapter=Chapter.FENCE,
        tests=tests(
            "state/test_operator_log",
            "a_superseded_driver_is_fenced",
            "an_overtaken_driver_is_fenced_whatever_batch_it_commits",
        ),
        removals=(replaced("self.version", "newest_version(self.lake) or 0"),),
    ),
    Rule(
        slug="entry-never-replaced",
        name="an entry never replaces another",
        chapter=Chapter.FENCE,
        tests=tests(
            "state/test_operator_log",
            "an_entry_is_written_atomically_and_never_replaces_another",
            "of_many_writers_of_the_same_version_one_wins",
        ),
        removals=(replaced("os.link(file, path)", "file.rename(path)"),),
    ),
    Rule(
        slug="conditional-put",
        name="in an object store an entry is written only if there is none, by the store's own condition",
        chapter=Chapter.FENCE,
        tests=tests(
            "lake/test_faults",
            "a_conditional_put_never_replaces_another_object",
            "a_stale_listing_decides_nothing",
        ),
        removals=(argument("mode", "'overwrite'"),),
    ),
    Rule(
        slug="refused-put-read-back",
        name="a refused put is read back: the same bytes are the writer's own, and no object means once more",
        chapter=Chapter.FENCE,
        tests=tests("lake/test_faults", "a_conditional_put_is_settled_by_what_is_in_the_lake"),
        removals=(instead("return False"),),
    ),
    Rule(
        slug="lake-key-plain",
        name="the name of an object is plain names with `/` between them, in every kind of lake",
        chapter=Chapter.FENCE,
        tests=tests("lake/test_conformance", "only_plain_names_are_keys"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="lake-away-writes-nothing",
        name="while the lake is not mounted, nothing is written in its place",
        chapter=Chapter.FENCE,
        tests=tests("state/test_operator_log", "a_missing_lake_is_unavailable_and_no_folder_is_created_in_its_place"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="replaced-entry-stops",
        name="an entry that another program has replaced stops the driver that wrote it",
        chapter=Chapter.FENCE,
        tests=tests("state/test_operator_log", "an_entry_that_another_program_has_replaced_stops_its_driver"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="replaced-entry-stops/earlier",
        name="an entry that another program replaces late, below the newest one, stops the driver within two minutes",
        chapter=Chapter.FENCE,
        tests=tests("state/lake/test_recent_entries", "an_entry_below_the_newest_that_is_replaced_late_is_found"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="higher-epoch-fences",
        name="a higher epoch fences, even if the own commit succeeded too",
        chapter=Chapter.FENCE,
        tests=tests("state/test_protocol_decisions", "a_higher_epoch_fences_even_beside_the_own_commit"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="foreign-data-stops",
        name="a foreign commit that changes data stops the driver",
        chapter=Chapter.FENCE,
        tests=(
            *tests("state/test_protocol_decisions", "a_foreign_change_of_data_stops"),
            *tests("state/test_operator_log", "a_foreign_change_of_data_beside_a_commit_stops"),
        ),
        removals=(dropped("any((entry.foreign_change for entry in above))"),),
    ),
    Rule(
        slug="second-commit-stops",
        name="a driver that finds another commit with its epoch, besides its own commit, stops",
        chapter=Chapter.FENCE,
        tests=tests("state/test_protocol_decisions", "a_foreign_commit_of_the_same_epoch_beside_the_own_commit_stops"),
        removals=(dropped("mine and rivals"),),
    ),
    Rule(
        slug="older-epoch-starts-over",
        name="a commit of the same or an older epoch instead of the driver's own makes the driver start over",
        chapter=Chapter.FENCE,
        tests=(
            *tests(
                "state/test_protocol_decisions", "a_foreign_commit_of_the_same_or_an_older_epoch_is_an_engine_error"
            ),
            *tests("state/test_operator_log", "of_two_claims_of_one_epoch_one_wins_and_the_other_starts_over"),
        ),
        removals=(dropped("not rivals"),),
    ),
    Rule(
        slug="foreign-change-starts-over",
        name="a foreign change of the table makes the driver start over",
        chapter=Chapter.FENCE,
        tests=(
            *tests(
                "state/test_protocol_decisions", "a_conflict_is_an_engine_error_unless_the_foreign_commits_are_harmless"
            ),
            *tests("state/test_operator_log", "a_foreign_change_of_the_table_makes_the_driver_start_over"),
        ),
        removals=(dropped("not any((entry.changes_table for entry in above))"),),
    ),
    Rule(
        slug="optimize-tolerated",
        name="a foreign OPTIMIZE is tolerated",
        chapter=Chapter.FENCE,
        tests=tests(
            "state/test_operator_log",
            "a_foreign_optimize_is_tolerated_and_batch_and_seq_stay",
            "a_foreign_optimize_while_the_driver_runs_is_tolerated",
        ),
        removals=(value("Verdict.ENGINE_ERROR"),),
    ),
    Rule(
        slug="path-inside-table",
        name="a path in the log that leaves the table is refused",
        chapter=Chapter.FENCE,
        tests=tests(
            "state/test_log_paths",
            "an_entry_with_a_path_that_leaves_the_table_stops_the_driver_and_every_start",
            "a_checkpoint_with_a_path_that_leaves_the_table_is_refused",
            "a_clean_up_deletes_nothing_outside_of_the_table",
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="identical-retry",
        name="after an unclear error the identical commit is retried",
        chapter=Chapter.FENCE,
        tests=tests(
            "state/test_operator_log",
            "an_unclear_commit_that_had_not_landed_is_tried_again_byte_for_byte",
            "an_unclear_commit_that_had_landed_is_found_to_be_committed",
        ),
        removals=(
            instead("raise"),
            followed("entry = entry + b'\\n'"),
        ),
    ),
    Rule(
        slug="listing-decides-nothing",
        name="after an unclear error a listing decides nothing",
        chapter=Chapter.FENCE,
        tests=tests("state/test_operator_log", "an_unclear_commit_that_had_not_landed_is_tried_again_byte_for_byte"),
        removals=(followed("if newest_version(self.lake) == self.version:\n    break"),),
    ),
    Rule(
        slug="conflicting-entries-read",
        name="on a conflict the new entries are read: if the driver's own attempt is among them, it is committed",
        chapter=Chapter.FENCE,
        tests=(
            *tests("state/test_protocol_decisions", "an_attempt_found_in_the_log_after_a_conflict_is_committed"),
            *tests("state/test_operator_log", "an_unclear_commit_that_had_landed_is_found_to_be_committed"),
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="no-update-to-newest",
        name="the handle never moves to the newest version by itself",
        chapter=Chapter.FENCE,
        tests=tests("project/test_house", "the_log_is_never_updated_to_whatever_is_newest"),
        removals=(preceded("from deltalake import DeltaTable; DeltaTable(str(self.path)).update_incremental()"),),
    ),
    Rule(
        slug="damaged-entry-stops",
        name="an empty or truncated entry stops the start, which names it",
        chapter=Chapter.FENCE,
        tests=tests("state/test_operator_log", "an_empty_or_truncated_newest_entry_stops_and_is_named"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="expected-version",
        name="no entry lies above the version that the search finds",
        chapter=Chapter.FENCE,
        tests=tests("state/test_operator_log", "a_log_whose_newest_entry_is_missing_under_a_checkpoint_is_refused"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="lost-entry-stops",
        name="an entry missing after the newest log checkpoint stops the start",
        chapter=Chapter.FENCE,
        tests=tests("state/test_operator_log", "an_entry_missing_after_the_newest_checkpoint_is_refused"),
        removals=(condition("True"),),
    ),
    Rule(
        slug="foreign-change-refused",
        name="a start refuses a RESTORE and a foreign change of data, with the remedy",
        chapter=Chapter.FENCE,
        tests=tests(
            "state/test_operator_log",
            "a_raw_restore_is_refused_at_start",
            "a_foreign_change_of_data_is_refused_at_start_with_the_remedy",
            "a_foreign_change_under_the_newest_own_commit_is_refused_at_start_too",
        ),
        removals=(
            deleted(way="data"),
            condition("entry.epoch is not None", way="restore"),
        ),
    ),
    Rule(
        slug="known-format",
        name="a log of another format is refused at start",
        chapter=Chapter.FENCE,
        tests=tests("state/test_operator_log", "a_log_of_a_different_format_is_refused"),
        removals=(condition("(written := snapshot.metadata['configuration'].get(FORMAT_KEY)) is None"),),
    ),
    Rule(
        slug="own-log",
        name="a log of another operator is refused at start",
        chapter=Chapter.FENCE,
        tests=tests("state/test_operator_log", "a_log_of_a_different_operator_is_refused"),
        removals=(condition("not (name := operator)"),),
    ),
    Rule(
        slug="known-delta-protocol",
        name="a log that requires a newer Delta protocol is refused at start",
        chapter=Chapter.FENCE,
        tests=tests("state/test_operator_log", "a_raised_delta_protocol_is_refused_at_start"),
        removals=(condition("False"),),
    ),
)
