"""What times a batch takes, and what is closed for good."""

from tests.rules.removals import condition, deleted, instead, replaced, value
from tests.rules.rule import Chapter, Rule, tests

_REFUSALS, _SUPPRESSION, _WINDOWS = (
    "operators/late_and_rejected",
    "operators/suppression/step",
    "operators/windowed_aggregation/step",
)

RULES = (
    Rule(
        slug="time-range",
        name="a record outside of the range of time is rejected",
        chapter=Chapter.BATCH,
        tests=tests(
            "operators/test_range_of_time", "a_record_beyond_the_range_is_rejected_by_every_operator_and_moves_no_time"
        ),
        removals=(condition("True"),),
    ),
    Rule(
        slug="idle-time-range",
        name="no idle advance moves stream time beyond the range",
        chapter=Chapter.BATCH,
        tests=tests("operators/test_range_of_time", "an_idle_advance_stays_within_the_range_of_time"),
        removals=(replaced("min(to, MAX_TIME)", "to"),),
    ),
    Rule(
        slug="lateness-not-negative",
        name="a late record that is ahead of stream time has lateness 0",
        chapter=Chapter.BATCH,
        tests=tests(
            "operators/test_lateness",
            "a_record_of_a_flushed_window_that_is_ahead_of_stream_time_has_lateness_0_and_its_cause_says_so",
        ),
        removals=(replaced("np.maximum(behind, 0)", "behind"),),
    ),
    Rule(
        slug="flushed-window-closed",
        name="a window that a flush has closed accepts no record",
        chapter=Chapter.BATCH,
        tests=tests(
            "operators/suppression/test_closed_windows",
            "a_flushed_window_never_accepts_a_record_again",
        ),
        removals=(
            condition("False", way="absorb"),
            value("state.time.arrival[slot]", way="close"),
        ),
    ),
    Rule(
        slug="flushed-session-closed",
        name="a session that a flush has closed accepts no record",
        chapter=Chapter.BATCH,
        tests=tests(
            "operators/windowed_aggregation/test_closed_sessions",
            "a_record_that_touches_a_flushed_session_alone_is_late",
        ),
        removals=(replaced("first < last or not _touches_closed(state, key, timestamp, late_until, rules)", "True"),),
    ),
    Rule(
        slug="refused-time-moves-nothing",
        name="a row that only passes its time on moves nothing if a record at that time would be rejected",
        chapter=Chapter.BATCH,
        tests=tests("laws/test_time_marks", "a_time_at_which_a_record_would_be_rejected_moves_nothing"),
        removals=(value("times < 0"),),
    ),
    Rule(
        slug="mark-per-moved-time",
        name="a time mark follows each record that moved stream time",
        chapter=Chapter.BATCH,
        tests=tests("laws/test_time_marks", "each_record_that_moves_time_has_a_mark_and_others_have_none"),
        removals=(value("np.array([len(passed) - 1])"),),
    ),
    Rule(
        slug="mark-behind-by-hold",
        name="a time mark is as far behind stream time as later results of the step may be",
        chapter=Chapter.BATCH,
        tests=tests("laws/test_time_marks", "the_results_that_a_record_causes_come_before_its_mark"),
        removals=(value("self.stream_times()"),),
    ),
    Rule(
        slug="mark-not-past-held",
        name="no time mark of a join is past the oldest record that it holds",
        chapter=Chapter.BATCH,
        tests=tests(
            "laws/test_time_marks",
            "records_that_waited_for_their_table_leave_behind_marks_of_their_own_times",
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="time-of-records",
        name="with the time of records a step's time is moved by the rows that arrive alone",
        chapter=Chapter.BATCH,
        tests=tests(
            "laws/test_between_steps",
            "with_the_time_of_records_only_rows_that_arrive_move_the_time_of_a_step",
            "with_the_time_of_records_a_step_that_holds_state_passes_no_marks_on",
        ),
        removals=(value("sifted.flow", way="stateless"), value("step.hold", way="holding")),
    ),
    Rule(
        slug="advance-by-marks",
        name="an idle advance advances the first steps that hold state; the others get their time marks",
        chapter=Chapter.BATCH,
        tests=tests("laws/test_between_steps", "an_idle_advance_reaches_later_steps_as_the_marks_of_the_first_one"),
        removals=(condition("self.way.kind == 'advance'"),),
    ),
    Rule(
        slug="merged-by-cause",
        name="merged rows are in the order of the records that caused them",
        chapter=Chapter.BATCH,
        tests=tests("laws/test_between_steps", "merged_rows_are_in_the_order_of_the_records_that_caused_them"),
        removals=(value("Sifted(flow, _NONE)"),),
    ),
    Rule(
        slug="numbered-by-arrival",
        name="rows behind the first step that holds state are numbered by arrival",
        chapter=Chapter.BATCH,
        tests=tests(
            "laws/test_between_steps",
            "rows_behind_the_first_step_that_holds_state_are_numbered_by_arrival",
        ),
        removals=(value("flow"),),
    ),
    Rule(
        slug="outputs-before-mark",
        name="the results that a record causes come before its time mark",
        chapter=Chapter.BATCH,
        tests=tests("laws/test_time_marks", "the_results_that_a_record_causes_come_before_its_mark"),
        removals=(replaced("'right'", "'left'"),),
    ),
    Rule(
        slug="mark-before-released",
        name="before a result that time alone releases stands a mark of the time until then",
        chapter=Chapter.BATCH,
        tests=tests(
            "laws/test_pipelines",
            "what_a_suppression_behind_a_join_emits_in_between_is_emitted_too_if_the_join_waited",
        ),
        removals=(value("behind_rows"),),
    ),
    Rule(
        slug="rejected-rows-move-nothing",
        name="a row that a step of a pipeline rejects moves the time of no step behind it",
        chapter=Chapter.BATCH,
        tests=tests(
            "laws/test_pipelines",
            "a_record_that_a_filter_drops_passes_its_time_on_and_one_that_is_rejected_does_not",
        ),
        removals=(instead("changed = changed.dropping(~np.isin(np.arange(len(flow)), rejected))"),),
    ),
    Rule(
        slug="keyless-rows-move-nothing",
        name="a row without a key that a filter drops moves the time of no step behind it",
        chapter=Chapter.BATCH,
        tests=tests("laws/test_pipelines", "a_dropped_row_without_a_key_moves_no_time"),
        removals=(value("np.ones(len(self), np.bool_)"),),
    ),
    Rule(
        slug="late-overtakes-none",
        name="a record that is late for a join overtakes no older one that waits for the table",
        chapter=Chapter.BATCH,
        tests=tests("laws/test_pipelines", "a_late_record_does_not_make_those_late_that_wait_for_the_table"),
        removals=(replaced("min(stream_time - rules.grace, oldest(time))", "stream_time - rules.grace"),),
    ),
    Rule(
        slug="inner-bound-undone",
        name="a bound that a pipeline reaches within a batch undoes what the batch did",
        chapter=Chapter.BATCH,
        tests=tests("laws/test_pipelines", "a_bound_within_stops_before_the_record_that_caused_it"),
        removals=(deleted(),),
    ),
    Rule(
        slug="refused-by-all-branches",
        name="a record of a pipeline's input is refused if no branch takes it",
        chapter=Chapter.BATCH,
        tests=tests("laws/test_pipelines", "a_record_is_refused_if_no_branch_takes_it"),
        removals=(value("set().union(*self.refused.values())"),),
    ),
    Rule(
        slug="untaken-passed-through",
        name="a pipeline passes records on that no step which holds state has taken",
        chapter=Chapter.BATCH,
        tests=tests(
            "pipelines/test_passed_records",
            "records_of_the_input_are_results_if_no_step_that_holds_state_takes_them",
        ),
        removals=(value("steps"),),
    ),
    Rule(
        slug="sink-of-step",
        name="an output topic of a pipeline gets the emissions of one step",
        chapter=Chapter.BATCH,
        tests=tests("runtime/publishing/test_publication", "each_output_gets_the_emissions_of_its_step_once"),
        removals=(value("np.arange(emissions.num_rows)"),),
    ),
    Rule(
        slug="new-key-is-not-null",
        name="a row whose new key is null is rejected",
        chapter=Chapter.BATCH,
        tests=tests(
            "pipelines/other_keys/test_another_key",
            "a_row_whose_new_key_is_null_is_rejected_as_it_came_and_moves_no_time",
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="rekeyed-rows-go-to-a-topic",
        name="rows with another key go to a topic by keys before a step that holds state reads them",
        chapter=Chapter.BATCH,
        tests=tests(
            "pipelines/other_keys/test_another_key",
            "a_step_that_holds_state_does_not_read_rows_with_another_key",
            "a_topic_of_rows_with_another_key_has_a_number_of_partitions",
        ),
        removals=(condition("False", way="state"), condition("False", way="sink")),
    ),
    Rule(
        slug="own-rules-first",
        name="each step of a pipeline acts under new rules of its own before it takes what other steps release",
        chapter=Chapter.BATCH,
        tests=tests(
            "laws/test_pipeline_changes",
            "each_step_acts_under_its_own_new_rules_before_it_takes_what_the_others_release",
        ),
        removals=(value("False"),),
    ),
    Rule(
        slug="apply-before-flush",
        name="a flush applies a changed configuration first",
        chapter=Chapter.BATCH,
        tests=tests("runtime/batch_loop/test_driver", "a_flush_applies_a_changed_configuration_first"),
        removals=(replaced("self.apply()", "True"),),
    ),
    Rule(
        slug="steps-keep-order",
        name="the steps of a pipeline that hold state keep their order",
        chapter=Chapter.BATCH,
        tests=tests("pipelines/test_changes", "steps_that_hold_state_keep_their_order"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="removed-step-empty",
        name="a step that is removed from a pipeline holds nothing",
        chapter=Chapter.BATCH,
        tests=tests("pipelines/test_changes", "a_step_that_is_removed_holds_nothing"),
        removals=(value("None"),),
    ),
    Rule(
        slug="new-step-last",
        name="a new step of a pipeline that holds state is the end of a branch",
        chapter=Chapter.BATCH,
        tests=tests(
            "pipelines/test_changes",
            "a_new_step_that_holds_state_goes_to_the_end",
            "a_step_does_not_come_before_one_that_is_there",
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="new-step-not-first",
        name="a new step of a pipeline that holds state is not written before all that were there",
        chapter=Chapter.BATCH,
        tests=tests("pipelines/test_changes", "a_new_branch_is_not_written_before_the_first_step"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="next-first-empty",
        name="the first step of a pipeline is removed only if the step that becomes the first holds nothing",
        chapter=Chapter.BATCH,
        tests=tests("pipelines/test_changes", "the_first_step_is_removed_only_if_the_next_one_holds_nothing"),
        removals=(value("None"),),
    ),
    Rule(
        slug="branches-keep-wires",
        name="a step that holds state keeps reading what it reads, or what a removed step between has read",
        chapter=Chapter.BATCH,
        tests=tests("pipelines/test_changes", "a_step_that_stays_reads_what_it_read"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="renumbered-step-empty",
        name="a step of a pipeline whose rows get other numbers holds nothing",
        chapter=Chapter.BATCH,
        tests=tests(
            "pipelines/test_changes",
            "rows_that_get_other_numbers_are_not_held",
            "flat_map_before_a_step_that_reads_the_input_neither_comes_nor_goes_while_that_holds_something",
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="first-step-keeps-time",
        name="a step of a pipeline that becomes the first goes on at the stream time of the partition",
        chapter=Chapter.BATCH,
        tests=tests("laws/test_pipeline_changes", "a_step_that_becomes_the_first_keeps_the_time_of_the_partition"),
        removals=(value("times[name].stream_time"),),
    ),
    Rule(
        slug="step-keeps-kind",
        name="a step of a pipeline that holds state keeps its kind",
        chapter=Chapter.BATCH,
        tests=tests("pipelines/test_changes", "a_step_of_another_kind_and_name_are_another_step"),
        removals=(replaced("_ANOTHER_KIND", "None"),),
    ),
    Rule(
        slug="unmeasured-step-holds-all",
        name="a step of a pipeline counts as holding what the partition holds if the log has no measure of it",
        chapter=Chapter.BATCH,
        tests=tests("pipelines/test_changes", "a_log_that_never_measured_its_steps_counts_as_holding_in_each"),
        removals=(replaced("known.totals.held", "0"),),
    ),
    Rule(
        slug="failing-rows-alone",
        name="of the rows that a batch function gets, those at which it fails are rejected and the others go on",
        chapter=Chapter.BATCH,
        tests=tests(
            "pipelines/test_batch_functions", "rows_at_which_a_function_fails_are_rejected_and_the_others_go_on"
        ),
        removals=(condition("True"),),
    ),
    Rule(
        slug="flat-map-in-order",
        name="the results of a flat_map are in the order of the rows of which they were made",
        chapter=Chapter.BATCH,
        tests=tests("pipelines/test_batch_functions", "the_results_of_a_flat_map_are_in_the_order_of_the_rows"),
        removals=(value("np.arange(len(row))"),),
    ),
    Rule(
        slug="known-of-first-step",
        name="only the first step of a pipeline may keep closed windows for longer",
        chapter=Chapter.BATCH,
        tests=tests("pipelines/test_changes", "closed_windows_of_a_later_step_are_not_kept_for_longer"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="held-columns-keep-type",
        name="columns that a step of a pipeline holds keep their type",
        chapter=Chapter.BATCH,
        tests=tests("pipelines/test_changes", "columns_that_a_step_holds_keep_their_type"),
        removals=(deleted(),),
    ),
    Rule(
        slug="steps-add-columns",
        name="the log of a pipeline gets the columns of new steps with the claim",
        chapter=Chapter.BATCH,
        tests=tests("state/test_operator_log", "a_pipeline_gets_the_columns_of_a_new_step_with_its_next_commit"),
        removals=(value("[]"),),
    ),
)
