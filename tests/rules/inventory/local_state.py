"""Local state: what its header says, and what it is good for."""

from tests.rules.removals import argument, condition, deleted, dropped, preceded, replaced, value
from tests.rules.rule import Chapter, Rule, tests

_CRASHES = "the_decisions_are_right_after_a_crash_at_any_step_of_an_attempt"

RULES = (
    Rule(
        slug="two-header-slots",
        name="the header has two slots, and a torn slot does not count",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_local_state", "the_newest_valid_slot_counts_and_a_torn_one_does_not"),
        removals=(
            replaced("sequence % 2 * SLOT_BYTES", "0", way="written"),
            dropped("checksum != _checksum(sequence, payload)", way="torn"),
            value("slots[0]", way="newest"),
        ),
    ),
    Rule(
        slug="dirty-first",
        name="the header is dirty before the first change",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("runtime/task/test_task", "the_header_is_dirty_while_the_state_changes_and_complete_at_the_end"),
        removals=(deleted(),),
    ),
    Rule(
        slug="complete-after-kernel",
        name="the header is marked complete after the kernel, and never while it runs",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("runtime/task/test_task", "a_task_that_fails_in_its_kernel_leaves_a_dirty_header"),
        removals=(preceded("local.complete()"),),
    ),
    Rule(
        slug="undo-failed-attempt",
        name="a failure after the kernel is undone by the next attempt",
        chapter=Chapter.LOCAL_STATE,
        tests=(
            *tests("runtime/task/test_task", "a_task_that_fails_after_its_kernel_is_undone_by_the_next_attempt"),
            *tests("state/test_recovery", "after_a_failed_attempt_the_state_is_undone_without_the_log"),
            *tests("state/test_protocol_decisions", "a_failed_attempt_is_undone_if_that_restores_the_last_commit"),
        ),
        removals=(
            dropped("step.undo", way="kept"),
            replaced("header.before is not None", "False", way="chosen"),
            value("tables", way="applied"),
        ),
    ),
    Rule(
        slug="undo-to-last-commit",
        name="an attempt is undone only to the partition's last commit, or to one that can be caught up",
        chapter=Chapter.LOCAL_STATE,
        tests=tests(
            "state/test_protocol_decisions",
            "a_failed_attempt_above_no_commit_of_the_partition_is_rebuilt",
            "a_failed_attempt_above_a_commit_before_the_newest_snapshot_is_rebuilt",
        ),
        removals=(
            replaced(
                "header.before == (wanted.last or NO_COMMIT) or _leads_on(header.before, wanted)", "True", way="chosen"
            ),
            value("True", way="leads-on"),
        ),
    ),
    Rule(
        slug="undo-of-batch-only",
        name="a state that a batch did not change has no undo rows",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_recovery", "a_state_that_was_not_changed_by_a_batch_has_no_undo_rows"),
        removals=(argument("before", "self._begun_from"),),
    ),
    Rule(
        slug="undo-readable",
        name="undo rows that cannot be read are not used",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_recovery", "an_attempt_whose_undo_rows_are_damaged_is_rebuilt"),
        removals=(
            condition("False", way="recovery"),
            replaced("(FileNotFoundError, pa.ArrowInvalid)", "FileNotFoundError", way="file"),
        ),
    ),
    Rule(
        slug="usable-if-last",
        name="a state is usable if its attempt is the partition's `last`",
        chapter=Chapter.LOCAL_STATE,
        tests=tests(
            "state/test_protocol_decisions",
            "a_state_of_the_last_commit_is_used",
            "a_state_of_the_last_commit_is_used_even_if_the_log_was_compacted_since",
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="attempt-not-number",
        name="a state is compared by attempt, not only by batch number: that of a failed attempt is not used",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_protocol_decisions", "a_failed_attempt_with_the_same_batch_number_is_rebuilt"),
        removals=(condition("here[0] == (wanted.last or NO_COMMIT)[0]"),),
    ),
    Rule(
        slug="catch-up-in-lineage",
        name="a state of an earlier commit is caught up only if the commit is in the lineage",
        chapter=Chapter.LOCAL_STATE,
        tests=tests(
            "state/test_protocol_decisions",
            "an_earlier_commit_outside_of_the_lineage_is_rebuilt",
            "an_earlier_commit_of_the_lineage_is_caught_up_from_its_batch",
        ),
        removals=(dropped("commit in wanted.lineage"),),
    ),
    Rule(
        slug="catch-up-from-snapshot",
        name="a state from before the newest snapshot is rebuilt",
        chapter=Chapter.LOCAL_STATE,
        tests=(
            *tests(
                "state/test_protocol_decisions",
                "a_commit_before_the_newest_snapshot_is_rebuilt_so_that_deleted_keys_stay_deleted",
            ),
            *tests(
                "state/test_recovery", "a_state_older_than_a_compaction_is_rebuilt_so_that_deleted_keys_stay_deleted"
            ),
        ),
        removals=(dropped("commit[0] >= wanted.snapshot"),),
    ),
    Rule(
        slug="compaction-is-snapshot",
        name="a compaction records that it is the newest snapshot",
        chapter=Chapter.LOCAL_STATE,
        tests=tests(
            "runtime/batch_loop/test_next_metadata", "a_claim_and_a_compaction_take_a_batch_each_and_keep_last"
        ),
        removals=(argument("snapshot_batch", "newest.partitions[p].snapshot_batch"),),
    ),
    Rule(
        slug="lineage-in-plan",
        name="a plan contains the lineage and the newest snapshot",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("runtime/batch_loop/test_planning", "a_task_receives_last_lineage_and_newest_snapshot"),
        removals=(
            dropped("snapshot="),
            dropped("lineage="),
        ),
    ),
    Rule(
        slug="catch-up-with-deletes",
        name="catching up applies the rows of all commits in between, deletes included",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_recovery", "an_older_state_is_caught_up_with_only_the_rows_of_later_commits"),
        removals=(dropped("plan.after_batch"),),
    ),
    Rule(
        slug="dirty-rebuilt",
        name="a dirty state is rebuilt",
        chapter=Chapter.LOCAL_STATE,
        tests=(
            *tests("state/test_protocol_decisions", "a_dirty_state_is_rebuilt"),
            *tests("state/test_local_state", _CRASHES),
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="reboot-not-durable",
        name="after a reboot a state that is not durable is rebuilt",
        chapter=Chapter.LOCAL_STATE,
        tests=tests(
            "state/test_protocol_decisions",
            "after_a_reboot_a_state_that_was_not_durable_is_rebuilt",
            "after_a_reboot_a_durable_state_is_used",
        ),
        removals=(
            condition("False"),
            dropped("not header.durable"),
        ),
    ),
    Rule(
        slug="other-layout",
        name="a state with a different layout is rebuilt",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_protocol_decisions", "a_state_of_a_different_layout_is_rebuilt"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="check-after-reboot",
        name="a full check runs after a reboot, and rebuilds a damaged state",
        chapter=Chapter.LOCAL_STATE,
        tests=tests(
            "state/test_recovery",
            "after_a_reboot_a_damaged_state_is_rebuilt",
            "after_a_reboot_a_state_with_a_different_seed_is_rebuilt",
        ),
        removals=(
            replaced("operator.damage(storage)", "None", way="state"),
            condition("False", way="seed"),
        ),
    ),
    Rule(
        slug="check-once",
        name="a state that was completed since the boot is trusted; it is verified once after a reboot",
        chapter=Chapter.LOCAL_STATE,
        tests=tests(
            "state/test_recovery",
            "a_new_driver_does_not_verify_a_state_completed_since_the_boot",
            "after_a_reboot_a_state_is_verified_once",
        ),
        removals=(
            condition("False", way="same-boot"),
            condition("True", way="new-epoch"),
        ),
    ),
    Rule(
        slug="dirty-while-opening",
        name="a new driver marks the header dirty before it opens a state, because its configuration may change arrays",
        chapter=Chapter.LOCAL_STATE,
        tests=tests(
            "state/test_recovery",
            "a_state_is_rebuilt_if_a_new_driver_is_killed_while_opening_it",
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="recover-before-attempt",
        name="local states are recovered before the attempt, and ready partitions do not wait for others",
        chapter=Chapter.LOCAL_STATE,
        tests=(
            *tests("runtime/batch_loop/test_driver", "local_states_are_recovered_before_an_attempt_begins"),
            *tests(
                "runtime/batch_loop/test_state_recovery",
                "partitions_that_are_ready_do_not_wait_for_those_that_are_rebuilt",
                "work_on_all_partitions_waits_for_all_states",
                "after_a_failed_attempt_only_its_partitions_are_recovered_first",
            ),
        ),
        removals=(
            value("self._plans()", way="batch"),
            deleted(way="failed"),
            value("ready", way="whole"),
        ),
    ),
    Rule(
        slug="header-in-locked-folder",
        name="a task whose folder was removed writes no header to the folder that replaced it",
        chapter=Chapter.LOCAL_STATE,
        tests=tests(
            "state/test_local_state",
            "a_header_goes_to_the_folder_of_the_lock_even_if_that_was_removed_just_before",
        ),
        removals=(value("path"),),
    ),
    Rule(
        slug="undo-names-attempt",
        name="undo rows undo only the attempt that they name",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_local_state", "undo_rows_of_a_different_attempt_are_not_applied"),
        removals=(value("rows"),),
    ),
    Rule(
        slug="files-complete",
        name="a state with missing or truncated files is rebuilt",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_recovery", "any_task_rebuilds_a_state_with_a_missing_or_truncated_file"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="synced-before-durable",
        name="a header says durable only after its arrays are synced",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_local_state", "arrays_are_synced_before_the_header_says_durable"),
        removals=(deleted(),),
    ),
    Rule(
        slug="torn-never-durable",
        name="a state that a reboot may have torn is never made durable",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_local_state", "a_state_of_an_earlier_boot_or_a_dirty_one_is_not_made_durable"),
        removals=(
            dropped("header.durable or header.boot_id == self.machine.boot_id()"),
            value("header is not None and header.boot_id == self.machine.boot_id()"),
        ),
    ),
    Rule(
        slug="dirty-both-slots",
        name="the first change of a durable state syncs the dirty header to both slots",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_local_state", "after_a_change_no_power_failure_restores_the_durable_header"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="never-in-place",
        name="a state is never rebuilt in place",
        chapter=Chapter.LOCAL_STATE,
        tests=tests(
            "state/test_local_state",
            "a_rebuild_never_changes_the_earlier_generation",
            "a_new_generation_has_its_name_when_the_change_is_complete",
        ),
        removals=(
            dropped("max((number for number, _ in self._generations()), default=0)", way="new"),
            replaced("self.header.generation if self.header else 0", "0", way="kept"),
        ),
    ),
    Rule(
        slug="generation-renamed",
        name="a new generation counts once it is renamed",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_local_state", "a_new_generation_has_its_name_when_the_change_is_complete", _CRASHES),
        removals=(dropped("new="),),
    ),
    Rule(
        slug="space-reserved",
        name="space is reserved before it is mapped",
        chapter=Chapter.LOCAL_STATE,
        tests=tests(
            "state/test_local_state", "space_is_reserved_before_it_is_mapped", "a_full_disk_is_an_engine_error"
        ),
        removals=(
            replaced(
                "machine.reserve(descriptor, status.st_size, size - status.st_size)",
                "os.ftruncate(descriptor, size)",
            ),
        ),
    ),
    Rule(
        slug="log-read-first",
        name="rows of the log are read before the state is changed",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_recovery", "a_failing_lake_never_damages_a_local_state"),
        removals=(preceded("local.begin(wanted.epoch, *(wanted.last or NO_COMMIT))"),),
    ),
    Rule(
        slug="seed-of-log",
        name="the hash of keys is seeded with the table id",
        chapter=Chapter.LOCAL_STATE,
        tests=tests("state/test_local_state", "a_state_has_the_seed_of_its_log"),
        removals=(replaced("self.table_id", "''"),),
    ),
)
