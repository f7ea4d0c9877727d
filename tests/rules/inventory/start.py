"""The start of a driver, and going on after what is unclear."""

from tests.rules.rule import Chapter, Rule, tests, without

_CLAIM, _PUBLICATION, _DRIVER = (
    "runtime/batch_loop/claim",
    "runtime/publishing/publication",
    "runtime/batch_loop/driver",
)
_STREAM = "runtime/stream/driver"

RULES = (
    Rule(
        name="executors that do not share the lake are refused before the first batch",
        chapter=Chapter.START,
        tests=tests(
            "runtime/test_lake_probe",
            "an_executor_with_another_lake_is_refused_and_named",
            "a_driver_asks_once_before_its_first_batch",
        ),
        removals=(
            without("runtime/spark/lake_probe", "if sight.answer is None:", "if False:"),
            without("runtime/spark/lake_probe", "if not probe.with_name(sight.answer).exists():", "if False:"),
            without(_DRIVER, "self._jobs.check_lake(self._log.path)"),
        ),
    ),
    Rule(
        name="an operator that has run before never begins a new log by itself",
        chapter=Chapter.START,
        tests=(
            *tests(
                "runtime/test_beginning",
                "an_operator_with_any_trace_waits_for_its_lake_and_goes_on_when_it_is_back",
            ),
            *tests(
                "stream/test_driver",
                "a_stream_that_has_run_before_never_begins_a_new_log_by_itself",
                "a_stream_whose_lake_goes_away_while_it_runs_makes_no_new_log",
            ),
        ),
        removals=(
            without(_CLAIM, "self._refuse_anew(starts)"),
            without(_CLAIM, "yield from traces_of_states(application.state / application.application, self._name)"),
            without(_CLAIM, "yield from traces_of_states(application.state / application.application, self._name)"),
            without(_CLAIM, "yield from traces_in_database(application.control_database, key)"),
            without(_CLAIM, "yield from traces_in_kafka(self._kafka(), key, self._config.input, sorted(starts))"),
            without(_STREAM, "refuse_anew(config.name, config.log, self._traces())"),
            without(_STREAM, "yield from traces_of_states(self._config.state, self._config.name)"),
            without(_STREAM, "self._claimed = True", "self._claimed = False"),
        ),
    ),
    Rule(
        name="a claim is committed before any transactional id is initialised",
        chapter=Chapter.START,
        tests=tests("runtime/test_claim", "a_claim_comes_first_then_initialising_then_marks_then_settling"),
        removals=(
            without(
                _CLAIM,
                "self._commit_claim(found.ids, wanted)",
                "self._published_to(wanted)\n        self._commit_claim(found.ids, wanted)",
            ),
        ),
    ),
    Rule(
        name="the transactional ids of all partitions are initialised before the marks are read",
        chapter=Chapter.START,
        tests=tests("runtime/test_claim", "a_claim_comes_first_then_initialising_then_marks_then_settling"),
        removals=(
            without(
                _PUBLICATION,
                "            self._initialise(partition, None)",
                "            self._initialise(partition, None)\n            break",
            ),
        ),
    ),
    Rule(
        name="marks are read only when no transaction is about to change them",
        chapter=Chapter.START,
        tests=(
            *tests("runtime/test_transaction_protocols", "marks_are_asked_for_when_they_are_stable"),
            *tests("runtime/test_kafka_transactions", "a_mark_waits_for_the_transaction_that_is_about_to_change_it"),
        ),
        removals=(without("runtime/kafka/offsets", "require_stable=True,", "require_stable=False,"),),
    ),
    Rule(
        name="a start publishes what is committed and not published",
        chapter=Chapter.START,
        tests=tests("runtime/test_publication", "what_is_committed_above_the_mark_is_published_at_start"),
        removals=(without(_PUBLICATION, "self.settle(self.producers, newest)"),),
    ),
    Rule(
        name="a failing step of the start starts over at the claim",
        chapter=Chapter.START,
        tests=tests("runtime/test_driver", "a_failing_step_of_the_start_starts_over_at_the_claim"),
        removals=(
            without(
                _DRIVER,
                "claimed = self._claimant.claim()",
                "self._owned = True\n        claimed = self._claimant.claim()",
            ),
        ),
    ),
    Rule(
        name="after an unclear end the next request is InitProducerId",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/test_publication", "after_an_end_without_an_answer_the_next_request_is_init_producer_id"),
        removals=(
            without(_PUBLICATION, "        self.unclear.update(producers)\n", ""),
            without(
                _PUBLICATION,
                "self._initialise(partition, self.producers[partition])\n            self.settle",
                "self.settle",
            ),
        ),
    ),
    Rule(
        name="one's own id and epoch tell a timeout from a takeover",
        chapter=Chapter.UNCLEAR,
        tests=(
            *tests(
                "runtime/test_publication",
                "after_an_end_without_an_answer_the_next_request_is_init_producer_id",
                "a_takeover_is_told_by_one_s_own_id_and_epoch",
            ),
            *tests(
                "runtime/test_kafka_transactions",
                "a_takeover_fences_the_older_producer_whatever_it_does",
                "after_a_timeout_one_s_own_id_and_epoch_are_accepted",
            ),
        ),
        removals=(
            without(
                "runtime/kafka/transactions",
                "producer_id=current.producer_id if current else _NO_PRODUCER,",
                "producer_id=_NO_PRODUCER,",
            ),
            without("runtime/kafka/transactions", "    if answer.error_code in _FENCED:", "    if False:"),
        ),
    ),
    Rule(
        name="an id is taken over at start only, after the claim",
        chapter=Chapter.UNCLEAR,
        tests=tests(
            "runtime/test_publication",
            "after_an_end_without_an_answer_the_next_request_is_init_producer_id",
            "an_abandoned_transaction_is_aborted_by_one_s_own_id_before_anything_else",
        ),
        removals=(
            without(
                _PUBLICATION,
                "self._initialise(partition, self.producers[partition])\n            self.settle",
                "self._initialise(partition, None)\n            self.settle",
            ),
        ),
    ),
    Rule(
        name="after a timeout the mark is read, and what it lacks published again",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/test_publication", "an_end_that_was_not_carried_out_is_published_again"),
        removals=(without(_PUBLICATION, "self.settle([partition], newest)"),),
    ),
    Rule(
        name="a driver that was fenced reads the log: behind a higher epoch it stops",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/test_claim", "a_driver_that_was_overtaken_does_not_claim_again"),
        removals=(without(_CLAIM, "self._refuse_overtaken(before)"),),
    ),
    Rule(
        name="a driver that was fenced without a higher epoch starts over",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/test_driver", "a_driver_that_was_fenced_claims_before_it_does_anything_else"),
        removals=(without(_DRIVER, "except (StartOver, Fenced, Superseded):", "except (StartOver, Superseded):"),),
    ),
    Rule(
        name="a claim of one's own that was in doubt is no takeover",
        chapter=Chapter.UNCLEAR,
        tests=tests("runtime/test_claim", "a_claim_of_one_s_own_that_was_in_doubt_is_no_takeover"),
        removals=(without(_CLAIM, " and found.attempt not in self._attempts:", ":"),),
    ),
)
