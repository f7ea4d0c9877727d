"""Workers that stay."""

from tests.rules.removals import condition, deleted, instead, replaced, value
from tests.rules.rule import Chapter, Rule, tests

RULES = (
    Rule(
        slug="homes-stay",
        name="a partition stays with its worker until that is lost, or a place lacks its share",
        chapter=Chapter.WORKERS,
        tests=tests(
            "runtime/workers/test_homes",
            "with_a_lost_place_only_its_partitions_move",
            "a_new_place_gets_its_share_and_nothing_else_moves",
        ),
        removals=(
            value("dict[int, str]()", way="kept"),
            condition("True", way="level"),
        ),
    ),
    Rule(
        slug="small-team",
        name="an operator's partitions are on no more workers than its limit",
        chapter=Chapter.WORKERS,
        tests=tests(
            "runtime/workers/test_placement",
            "a_team_has_no_more_workers_than_its_limit_and_is_the_same_after_a_restart",
        ),
        removals=(value("list(sizes)"),),
    ),
    Rule(
        slug="few-records-gathered",
        name="one worker of a place has all partitions of a batch with few records",
        chapter=Chapter.WORKERS,
        tests=tests(
            "runtime/workers/test_jobs", "one_worker_of_a_place_has_all_partitions_of_a_batch_with_few_records"
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="copies-dropped",
        name="a place drops its copies of states whose partitions are at home elsewhere",
        chapter=Chapter.WORKERS,
        tests=tests("runtime/workers/test_jobs", "a_place_is_told_to_drop_copies_of_states_that_are_at_home_elsewhere"),
        removals=(deleted(),),
    ),
    Rule(
        slug="lost-executor-noticed",
        name="the workers of an executor that Spark has lost are lost",
        chapter=Chapter.WORKERS,
        tests=tests(
            "runtime/workers/test_keeper",
            "the_workers_of_an_executor_that_spark_has_lost_are_lost_at_the_next_look",
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="fair-turns",
        name="an operator has its next turn after all others that wait",
        chapter=Chapter.WORKERS,
        tests=tests("runtime/workers/test_homes", "no_owner_has_two_turns_while_another_one_waits"),
        removals=(instead("self._waiting = OrderedDict({owner: items, **self._waiting})"),),
    ),
    Rule(
        slug="workers-authenticated",
        name="driver and worker authenticate each other with a random key",
        chapter=Chapter.WORKERS,
        tests=tests(
            "runtime/workers/test_resident",
            "only_who_has_the_key_is_welcome_and_a_silent_stranger_keeps_nobody_waiting",
        ),
        removals=(deleted(),),
    ),
    Rule(
        slug="given-up-ends",
        name="a worker that works while its connection closes ends at once",
        chapter=Chapter.WORKERS,
        tests=tests(
            "runtime/workers/test_resident",
            "a_lost_process_fails_its_work_and_what_waits_and_ends_if_it_still_worked",
        ),
        removals=(condition("False"),),
    ),
    Rule(
        slug="lost-worker-fails-plans",
        name="an attempt fails with the loss of a worker that has a part in it",
        chapter=Chapter.WORKERS,
        tests=tests(
            "runtime/workers/test_jobs",
            "the_loss_of_a_worker_fails_its_plans_and_so_the_attempt_without_waiting_for_others",
        ),
        removals=(value("list[Any]()"),),
    ),
    Rule(
        slug="stuck-worker-replaced",
        name="a worker whose task runs and does not connect is replaced",
        chapter=Chapter.WORKERS,
        tests=tests("runtime/workers/test_keeper", "a_worker_whose_task_runs_and_does_not_connect_is_replaced"),
        removals=(condition("False"),),
    ),
    Rule(
        slug="frozen-worker-lost",
        name="a worker without a sign of life for ten seconds is lost",
        chapter=Chapter.WORKERS,
        tests=tests(
            "runtime/workers/test_keeper",
            "a_worker_without_a_sign_of_life_for_ten_seconds_is_lost_and_replaced",
        ),
        removals=(replaced("FROZEN_LOOKS", "10 ** 9"),),
    ),
)
