"""What a commit holds, and the numbers in it."""

from tests.rules.removals import argument, condition, deleted, dropped, instead, replaced, value
from tests.rules.rule import Chapter, Rule, tests

RULES = (
    Rule(
        slug="committed-files-whole",
        name="the files that a commit names are complete as the driver sees them",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/test_operator_log",
            "a_commit_with_a_file_that_is_incomplete_for_the_driver_is_not_written",
        ),
        removals=(
            deleted(way="checked"),
            condition("False", way="size"),
            replaced("end == _PARQUET_END", "True", way="end"),
        ),
    ),
    Rule(
        slug="batch-number-once",
        name="a batch number is never used again",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "a_batch_number_is_never_used_again"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="claim-takes-number",
        name="a claim takes a batch number",
        chapter=Chapter.COMMIT,
        tests=tests(
            "runtime/batch_loop/test_next_metadata", "a_claim_and_a_compaction_take_a_batch_each_and_keep_last"
        ),
        removals=(argument("batch", "newest.batch"),),
    ),
    Rule(
        slug="compaction-takes-number",
        name="a compaction takes a batch number",
        chapter=Chapter.COMMIT,
        tests=tests(
            "runtime/batch_loop/test_next_metadata", "a_claim_and_a_compaction_take_a_batch_each_and_keep_last"
        ),
        removals=(dropped("1"),),
    ),
    Rule(
        slug="claim-raises-epoch",
        name="every claim raises the epoch",
        chapter=Chapter.COMMIT,
        tests=tests(
            "runtime/batch_loop/test_next_metadata", "a_claim_and_a_compaction_take_a_batch_each_and_keep_last"
        ),
        removals=(argument("epoch", "newest.epoch"),),
    ),
    Rule(
        slug="new-attempt-id",
        name="every try of a batch has a new attempt id",
        chapter=Chapter.COMMIT,
        tests=tests("runtime/batch_loop/test_driver", "every_try_of_a_batch_has_a_new_attempt_id"),
        removals=(replaced("uuid4().hex", "str(self.newest.batch + 1)"),),
    ),
    Rule(
        slug="last-commit",
        name="a partition's `last` is the batch and attempt of the newest commit that changed it",
        chapter=Chapter.COMMIT,
        tests=tests("runtime/batch_loop/test_next_metadata", "metadata_is_complete_for_partitions_that_took_no_part"),
        removals=(dropped("last="),),
    ),
    Rule(
        slug="offsets-of-all",
        name="metadata has the offsets and stream times of all partitions",
        chapter=Chapter.COMMIT,
        tests=tests("runtime/batch_loop/test_next_metadata", "metadata_is_complete_for_partitions_that_took_no_part"),
        removals=(argument("partitions", "after"),),
    ),
    Rule(
        slug="counts-balance",
        name="a batch whose counts do not balance is not committed",
        chapter=Chapter.COMMIT,
        tests=tests("runtime/batch_loop/test_next_metadata", "a_batch_whose_counts_do_not_balance_is_not_committed"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="metadata-in-entry",
        name="a commit contains the metadata of its batch, only in its entry",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/test_operator_log",
            "a_commit_carries_the_application_transaction_and_its_metadata",
            "a_commit_is_read_back_with_its_metadata_by_any_handle",
        ),
        removals=(dropped("COMMIT_METADATA_KEY:"),),
    ),
    Rule(
        slug="metadata-as-change",
        name="metadata contains what the batch changed, unless it is complete",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/test_metadata",
            "of_100_partitions_a_batch_that_touches_one_writes_at_most_4_kb_of_metadata",
            "a_document_is_written_as_it_was_before_metadata_was_one_value_per_partition",
        ),
        removals=(
            replaced("complete", "True", way="entry"),
            replaced("key not in before or differs(before[key], value)", "True", way="fields"),
        ),
    ),
    Rule(
        slug="metadata-builds-up",
        name="metadata that is not complete builds upon that of the previous batch",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "metadata_is_rebuilt_from_the_newest_complete_metadata"),
        removals=(
            condition("True", way="read"),
            dropped("dict.fromkeys(before.keys() - now.keys())", way="gone"),
            replaced("_KEPT", "_NAMES", way="kept"),
            dropped("kept", way="merged"),
        ),
    ),
    Rule(
        slug="metadata-complete",
        name="claims, compactions and commits with a checkpoint have complete metadata",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/test_operator_log",
            "claims_compactions_and_checkpointed_commits_have_complete_metadata",
            "a_checkpoint_is_written_only_for_a_version_with_complete_metadata",
        ),
        removals=(
            dropped("meta.epoch != newest.epoch", way="written"),
            dropped("meta.action == 'compaction'", way="written"),
            dropped("self._needs_checkpoint(self.version + 1)", way="written"),
            dropped("self._newest.version != self.version", way="checkpoint"),
        ),
    ),
    Rule(
        slug="format-upgrade",
        name="a claim upgrades a log of format 1 to format 2",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/formats/test_format_1",
            "a_claim_upgrades_a_log_of_format_1",
            "a_compaction_of_format_1_keeps_each_batch_s_metadata_exactly_once",
        ),
        removals=(
            dropped("*self._upgrade()", way="table"),
            dropped("recorded=", way="recorded"),
            value("FORMAT", way="kept"),
        ),
    ),
    Rule(
        slug="part-alone",
        name="of a data file, only the rows of one kind and partition are read at a time",
        chapter=Chapter.COMMIT,
        tests=tests("state/formats/test_mixed_files", "each_part_is_read_alone"),
        removals=(replaced("_of_parts(ordered)", "ds.scalar(True)"),),
    ),
    Rule(
        slug="parts-of-foreign-files",
        name="of a file that another program wrote, the rows themselves say whose they are",
        chapter=Chapter.COMMIT,
        tests=tests("state/formats/test_mixed_files", "files_of_a_foreign_optimize_are_read_and_split"),
        removals=(value("replace(file, parts=())"),),
    ),
    Rule(
        slug="txn-in-commit",
        name="every commit carries the application transaction of its batch",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "a_commit_carries_the_application_transaction_and_its_metadata"),
        removals=(dropped("transaction(meta)"),),
    ),
    Rule(
        slug="metadata-required",
        name="a log without the metadata of its newest batch stops the operator",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/test_operator_log",
            "a_log_without_an_entry_that_its_newest_metadata_needs_is_refused",
        ),
        removals=(
            instead("if newest is None:\n    return None", way="opened"),
            condition("False", way="read"),
        ),
    ),
    Rule(
        slug="metadata-in-checkpoint",
        name="the metadata survives log checkpoints",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "log_checkpoints_change_nothing_that_is_read"),
        removals=(dropped("*({'txn': transaction} for transaction in self.transactions.values())"),),
    ),
    Rule(
        slug="no-delta-cleanup",
        name="Delta never cleans up the log by itself",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "delta_never_cleans_up_the_log_by_itself"),
        removals=(dropped("'delta.enableExpiredLogCleanup':"),),
    ),
)
