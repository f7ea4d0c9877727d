"""What times a batch takes, and what is closed for good."""

from tests.rules.removals import condition, deleted, replaced, value
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
        slug="outputs-before-mark",
        name="the results that a record causes come before its time mark",
        chapter=Chapter.BATCH,
        tests=tests("laws/test_time_marks", "the_results_that_a_record_causes_come_before_its_mark"),
        removals=(replaced("'right'", "'left'"),),
    ),
    Rule(
        slug="rejected-rows-move-nothing",
        name="a row that a step of a pipeline rejects moves the time of no step behind it",
        chapter=Chapter.BATCH,
        tests=tests(
            "laws/test_pipelines",
            "a_record_that_a_filter_drops_passes_its_time_on_and_one_that_is_rejected_does_not",
        ),
        removals=(value("Sifted(flow.dropping(~rejected), at, (cause,) * len(at))"),),
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
        slug="sink-of-step",
        name="an output topic of a pipeline gets the emissions of one step",
        chapter=Chapter.BATCH,
        tests=tests("runtime/publishing/test_publication", "each_output_gets_the_emissions_of_its_step_once"),
        removals=(value("np.arange(emissions.num_rows)"),),
    ),
)
