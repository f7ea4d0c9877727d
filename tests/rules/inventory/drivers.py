"""Who drives an operator: leases, and requests to the running driver."""

from tests.rules.removals import condition, value
from tests.rules.rule import Chapter, Rule, tests

_DECISIONS, _REQUESTS = "state/drivers/test_lease_decisions", "state/drivers/test_driver_requests"
_LEASES, _STANDBY = "state/drivers/test_driver_leases", "runtime/batch_loop/test_standby"

RULES = (
    Rule(
        slug="lake-budget",
        name="a budget for requests delays the next batch, for half a minute at most",
        chapter=Chapter.DRIVERS,
        tests=tests(
            "state/drivers/test_request_budget", "a_budget_below_the_standing_costs_leaves_a_batch_every_half_minute"
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="only-changes-renew",
        name="a lease that has not changed shows no life",
        chapter=Chapter.DRIVERS,
        tests=tests(_DECISIONS, "a_lease_that_stays_the_same_for_too_long_is_that_of_a_driver_that_is_gone"),
        removals=(condition("True"),),
    ),
    Rule(
        slug="outage-is-no-silence",
        name="the time in which the lake did not answer the watcher is not counted as the driver's silence",
        chapter=Chapter.DRIVERS,
        tests=tests(_DECISIONS, "the_time_in_which_the_lake_did_not_answer_is_no_silence_of_the_driver"),
        removals=(value("now - self.at"),),
    ),
    Rule(
        slug="ended-instance-is-gone",
        name="a driver whose state folder no process has is gone: a restart need not wait",
        chapter=Chapter.DRIVERS,
        tests=(
            *tests(_DECISIONS, "a_driver_that_starts_again_with_the_same_instance_need_not_wait"),
            *tests(_STANDBY, "a_driver_of_the_same_instance_claims_at_once"),
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="silent-driver-is-gone",
        name="a driver that does not renew its lease for `takeover_after` counts as gone",
        chapter=Chapter.DRIVERS,
        tests=(
            *tests(_DECISIONS, "a_lease_that_stays_the_same_for_too_long_is_that_of_a_driver_that_is_gone"),
            *tests(_DECISIONS, "a_lease_that_cannot_be_read_counts_by_its_etag"),
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="living-driver-kept",
        name="a living driver is not overtaken, unless that is asked for",
        chapter=Chapter.DRIVERS,
        tests=(
            *tests(_DECISIONS, "a_living_driver_is_kept_unless_a_takeover_is_asked_for"),
            *tests(_DECISIONS, "nobody_is_refused_before_the_driver_has_shown_life"),
        ),
        removals=(condition("True"),),
    ),
    Rule(
        slug="lease-of-newest-epoch",
        name="the lease of an older epoch than the log's shows nothing: its driver is fenced",
        chapter=Chapter.DRIVERS,
        tests=tests(_LEASES, "a_lease_of_an_older_epoch_than_the_log_s_shows_nothing_of_its_driver"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="claimed-meanwhile",
        name="a driver whose turn it is looks into the log first, and waits again if another one has claimed",
        chapter=Chapter.DRIVERS,
        tests=tests(_STANDBY, "a_claim_that_another_driver_made_meanwhile_is_waited_for_again"),
        removals=(condition("True"),),
    ),
    Rule(
        slug="claim-follows-known-epoch",
        name="a claim follows only the epoch that its driver has seen: of several that stand by, one takes over",
        chapter=Chapter.DRIVERS,
        tests=tests("runtime/batch_loop/test_claim", "a_claim_does_not_follow_an_epoch_that_its_driver_has_not_seen"),
        removals=(value("self._newest.epoch if self._attempts else None"),),
    ),
    Rule(
        slug="fenced-stands-by",
        name="a fenced driver that stands by does so again, instead of taking the operator back",
        chapter=Chapter.DRIVERS,
        tests=tests("runtime/batch_loop/test_takeover", "a_frozen_driver_is_fenced_by_its_next_commit_and_stands_by"),
        removals=(condition("True"),),
    ),
    Rule(
        slug="fenced-expects-lease",
        name="a fenced driver waits for the lease of the driver that has fenced it, which may not be there yet",
        chapter=Chapter.DRIVERS,
        tests=tests(_STANDBY, "a_fenced_driver_waits_for_the_lease_of_the_one_that_has_fenced_it"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="takeover-keeps-applied",
        name="a standby takes over under the configuration in the log",
        chapter=Chapter.DRIVERS,
        tests=tests(
            "runtime/batch_loop/test_takeover",
            "a_standby_with_another_file_takes_over_under_the_configuration_in_the_log",
        ),
        removals=(condition("True"),),
    ),
    Rule(
        slug="request-of-newer-driver",
        name="a fenced driver leaves alone what was sent to its successor",
        chapter=Chapter.DRIVERS,
        tests=tests(_REQUESTS, "a_fenced_driver_leaves_what_was_sent_to_its_successor"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="request-of-older-driver",
        name="a driver does not carry out what was sent to an earlier one",
        chapter=Chapter.DRIVERS,
        tests=tests(_REQUESTS, "a_driver_refuses_what_was_sent_to_an_earlier_one"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="request-expired",
        name="a request is refused when its requester no longer waits",
        chapter=Chapter.DRIVERS,
        tests=tests(_REQUESTS, "a_request_that_is_too_late_is_refused"),
        removals=(condition("False"),),
    ),
)
