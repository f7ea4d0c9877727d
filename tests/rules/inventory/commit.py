"""What a commit holds, and the numbers in it."""

from tests.rules.rule import Chapter, Rule, tests, without

_LOG, _LEDGER = "state/operator_log", "runtime/ledger"

RULES = (
    Rule(
        name="a batch number is never used again",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "a_batch_number_is_never_used_again"),
        removals=(without(_LOG, "if newest is not None and meta.batch <= newest.batch:", "if False:"),),
    ),
    Rule(
        name="a claim takes a batch number",
        chapter=Chapter.COMMIT,
        tests=tests("runtime/test_ledger", "a_claim_and_a_compaction_take_a_batch_each_and_keep_last"),
        removals=(without(_LEDGER, "batch=newest.batch + 1,", "batch=newest.batch,"),),
    ),
    Rule(
        name="a compaction takes a batch number",
        chapter=Chapter.COMMIT,
        tests=tests("runtime/test_ledger", "a_claim_and_a_compaction_take_a_batch_each_and_keep_last"),
        removals=(without(_LEDGER, "batch = newest.batch + 1", "batch = newest.batch"),),
    ),
    Rule(
        name="every claim raises the epoch",
        chapter=Chapter.COMMIT,
        tests=tests("runtime/test_ledger", "a_claim_and_a_compaction_take_a_batch_each_and_keep_last"),
        removals=(without(_LEDGER, "epoch=newest.epoch + 1,", "epoch=newest.epoch,"),),
    ),
    Rule(
        name="every try of a batch has an attempt of its own",
        chapter=Chapter.COMMIT,
        tests=tests("runtime/test_driver", "every_try_of_a_batch_has_an_attempt_of_its_own"),
        removals=(
            without(
                "runtime/driver",
                "batch, attempt, now = self.newest.batch + 1, uuid4().hex, clock.now_ms()",
                "batch, attempt, now = self.newest.batch + 1, str(self.newest.batch + 1), clock.now_ms()",
            ),
        ),
    ),
    Rule(
        name="a partition's last is the batch and attempt of the newest commit that changed it",
        chapter=Chapter.COMMIT,
        tests=tests("runtime/test_ledger", "maps_are_complete_for_partitions_that_took_no_part"),
        removals=(
            without(_LEDGER, "**{r.partition: (batch, attempt) for r in results}}", "}"),
            without(_LEDGER, "last={**newest.last, **{r.part", "last={**{r.part"),
        ),
    ),
    Rule(
        name="offsets and stream times are those of all partitions",
        chapter=Chapter.COMMIT,
        tests=tests("runtime/test_ledger", "maps_are_complete_for_partitions_that_took_no_part"),
        removals=(without(_LEDGER, "topic: {**newest.offsets.get(topic, {}), **{r.part", "topic: {**{r.part"),),
    ),
    Rule(
        name="a batch whose counts do not balance is not committed",
        chapter=Chapter.COMMIT,
        tests=tests("runtime/test_ledger", "a_batch_whose_counts_do_not_balance_is_not_committed"),
        removals=(without(_LEDGER, "if not result.counts.balanced:", "if False:"),),
    ),
    Rule(
        name="a commit holds its metadata in a row",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "a_commit_is_read_back_with_its_metadata_by_any_handle"),
        removals=(without(_LOG, "added = [add(write_meta(self.path, meta), changes_data=True)]", "added = []"),),
    ),
    Rule(
        name="a commit holds its metadata for tools",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/test_operator_log", "a_commit_carries_the_application_transaction_and_the_metadata_for_tools"
        ),
        removals=(without("state/actions", "COMMIT_METADATA_KEY: meta.to_json(),", ""),),
    ),
    Rule(
        name="every commit carries the application transaction of its batch",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/test_operator_log", "a_commit_carries_the_application_transaction_and_the_metadata_for_tools"
        ),
        removals=(
            without(_LOG, "actions = [commit_info(meta), transaction(meta), *", "actions = [commit_info(meta), *"),
        ),
    ),
    Rule(
        name="the metadata is the row whose batch is the application transaction's version",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "the_metadata_is_that_of_the_application_transaction_s_batch"),
        removals=(without(_LOG, '.filter(pc.field("batch") == batch)', ""),),
    ),
    Rule(
        name="a log without that row stops the operator",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "a_log_without_the_metadata_row_of_its_newest_batch_is_refused"),
        removals=(
            without(
                _LOG, "if rows.num_rows != 1:", "if rows.num_rows == 0:\n            return None\n        if False:"
            ),
        ),
    ),
    Rule(
        name="the metadata survives log checkpoints",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "log_checkpoints_change_nothing_that_is_read"),
        removals=(
            without("state/snapshot", '*({"txn": transaction} for transaction in self.transactions.values()),', ""),
        ),
    ),
    Rule(
        name="Delta never cleans the log up by itself",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "delta_never_cleans_the_log_up_by_itself"),
        removals=(without(_LOG, '"delta.enableExpiredLogCleanup": "false",', ""),),
    ),
)
