"""What a commit holds, and the numbers in it."""

from tests.rules.rule import Chapter, Rule, tests, without

_LOG, _LEDGER = "state/delta_log/operator_log", "runtime/batch_loop/metadata"

RULES = (
    Rule(
        name="the files that a commit names are whole where the driver looks for them",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/test_operator_log",
            "a_commit_that_names_a_file_which_the_driver_cannot_see_whole_is_not_made",
        ),
        removals=(
            without(_LOG, "require_whole(self.path, [*files, *records])"),
            without("state/delta_log/data_files", "if found != size:", "if False:"),
            without(
                "state/delta_log/data_files", "return None if end == _PARQUET_END else", "return None if True else"
            ),
        ),
    ),
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
                "runtime/batch_loop/driver",
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
        name="a commit holds the metadata of its batch, in its entry alone",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/test_operator_log",
            "a_commit_carries_the_application_transaction_and_its_metadata",
            "a_commit_is_read_back_with_its_metadata_by_any_handle",
        ),
        removals=(without("state/delta_log/actions", "COMMIT_METADATA_KEY: document,", ""),),
    ),
    Rule(
        name="metadata is what the batch changed, unless it is complete",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/test_metadata", "of_100_partitions_a_batch_that_touches_one_writes_at_most_4_kb_of_metadata"
        ),
        removals=(
            without(_LOG, "meta.to_json() if complete else", "meta.to_json() if True else"),
            without("contracts/patches", "if key not in before or differs(before[key], value)", "if True"),
        ),
    ),
    Rule(
        name="metadata that is not complete builds upon that of the batch before",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "the_metadata_is_put_together_from_the_newest_complete_one_on"),
        removals=(
            without("state/delta_log/metadata", "if is_complete(document):", "if True:"),
            without(
                "contracts/patches", "return differing | dict.fromkeys(before.keys() - now.keys())", "return differing"
            ),
            without("contracts/schema", "**_NOTHING_OWN | said | kept", "**said | kept"),
            without("contracts/schema", "**_NOTHING_OWN | said | kept", "**_NOTHING_OWN | said"),
        ),
    ),
    Rule(
        name="the metadata of a claim, of a compaction and of what a checkpoint is written of is complete",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/test_operator_log",
            "a_claim_and_a_compaction_and_what_a_checkpoint_is_written_of_have_complete_metadata",
            "a_checkpoint_is_written_of_a_version_with_complete_metadata_alone",
        ),
        removals=(
            without(_LOG, "or meta.epoch != newest.epoch", ""),
            without(_LOG, 'or meta.action == "compaction"', ""),
            without(_LOG, "or self._needs_checkpoint(self.version + 1)", ""),
            without(_LOG, "self._newest.version != self.version or not", "not"),
        ),
    ),
    Rule(
        name="a log of format 1 is taken over by a claim, and is of format 2 from then on",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/test_format_1", "a_claim_takes_a_log_of_format_1_over", "its_compaction_leaves_every_batch_told_once"
        ),
        removals=(
            without(_LOG, "*self._upgrade(), ", ""),
            without(_LEDGER, "recorded=recorded_through(newest),", ""),
        ),
    ),
    Rule(
        name="every commit carries the application transaction of its batch",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "a_commit_carries_the_application_transaction_and_its_metadata"),
        removals=(without(_LOG, "transaction(meta), *self", "*self"),),
    ),
    Rule(
        name="a log without the metadata of its newest batch stops the operator",
        chapter=Chapter.COMMIT,
        tests=tests(
            "state/test_operator_log",
            "a_log_that_lacks_what_its_newest_metadata_is_put_together_from_is_refused",
        ),
        removals=(
            without(
                _LOG,
                'if newest is None or newest.meta.batch != committed["version"]:',
                "if newest is None:\n            return None\n        if False:",
            ),
            without("state/delta_log/metadata", "    if documents:\n        raise", "    if False:\n        raise"),
        ),
    ),
    Rule(
        name="the metadata survives log checkpoints",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "log_checkpoints_change_nothing_that_is_read"),
        removals=(
            without(
                "state/delta_log/snapshot", '*({"txn": transaction} for transaction in self.transactions.values()),', ""
            ),
        ),
    ),
    Rule(
        name="Delta never cleans the log up by itself",
        chapter=Chapter.COMMIT,
        tests=tests("state/test_operator_log", "delta_never_cleans_the_log_up_by_itself"),
        removals=(without(_LOG, '"delta.enableExpiredLogCleanup": "false",', ""),),
    ),
)
