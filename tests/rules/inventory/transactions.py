"""Kafka's two transaction protocols."""

from tests.rules.removals import argument, condition, deleted, dropped, value
from tests.rules.rule import Chapter, Rule, tests

_HERE = "runtime/kafka/test_transaction_protocols"

RULES = (
    Rule(
        slug="transaction-version",
        name="the transaction protocol follows the broker's finalised feature",
        chapter=Chapter.TRANSACTIONS,
        tests=(
            *tests(_HERE, "the_protocol_is_that_of_the_broker"),
            *tests("runtime/kafka/test_transactions", "the_protocol_follows_the_finalised_feature"),
        ),
        removals=(
            argument("version", "2", way="producer"),
            value("2", way="feature"),
        ),
    ),
    Rule(
        slug="request-versions",
        name="request versions follow from the protocol",
        chapter=Chapter.TRANSACTIONS,
        tests=tests(_HERE, "request_versions_follow_from_the_protocol"),
        removals=(
            dropped("'max_version':", way="v1"),
            value("{}", way="v2"),
        ),
    ),
    Rule(
        slug="v2-announces-nothing",
        name="version 2 adds neither partitions nor offsets explicitly",
        chapter=Chapter.TRANSACTIONS,
        tests=tests(_HERE, "version_1_announces_partitions_and_offsets_and_version_2_neither"),
        removals=(
            condition("not places", way="partitions"),
            condition("True", way="offsets"),
        ),
    ),
    Rule(
        slug="v1-announces-first",
        name="version 1 adds partitions and offsets first",
        chapter=Chapter.TRANSACTIONS,
        tests=tests(_HERE, "version_1_announces_partitions_and_offsets_and_version_2_neither"),
        removals=(deleted(),),
    ),
    Rule(
        slug="v2-sequence-from-zero",
        name="in version 2 sequences start from 0 in every transaction",
        chapter=Chapter.TRANSACTIONS,
        tests=tests(_HERE, "in_version_2_a_transaction_begins_at_sequence_0_with_the_end_s_id_and_epoch"),
        removals=(dropped("sequences="),),
    ),
    Rule(
        slug="v2-epoch-of-end",
        name="in version 2 producer id and epoch come from the response to EndTxn",
        chapter=Chapter.TRANSACTIONS,
        tests=tests(_HERE, "in_version_2_a_transaction_begins_at_sequence_0_with_the_end_s_id_and_epoch"),
        removals=(
            dropped("producer_id="),
            dropped("epoch="),
        ),
    ),
    Rule(
        slug="v1-sequence-wraps",
        name="in version 1 sequences continue, modulo 2^31",
        chapter=Chapter.TRANSACTIONS,
        tests=(
            *tests(_HERE, "in_version_1_sequences_continue_modulo_2_to_the_31"),
            *tests("kernels/record_format/test_record_batch", "sequences_continue_modulo_two_to_the_31"),
        ),
        removals=(
            dropped("_SEQUENCES"),
            value("replace(producer, opened=False, sequences={})", way="ended"),
        ),
    ),
    Rule(
        slug="concurrent-transactions",
        name="after CONCURRENT_TRANSACTIONS any request is retried",
        chapter=Chapter.TRANSACTIONS,
        tests=tests(_HERE, "a_concurrent_transaction_is_waited_for"),
        removals=(value("code != 51 and bool(for_code(code).retriable)"),),
    ),
    Rule(
        slug="forgotten-producer-id",
        name="a producer id that the broker has forgotten is initialised again, not retried",
        chapter=Chapter.TRANSACTIONS,
        tests=(
            *tests(_HERE, "a_forgotten_producer_id_is_an_error_at_once"),
            *tests(
                "runtime/publishing/test_publication",
                "after_a_forgotten_producer_id_the_next_request_is_init_producer_id",
            ),
        ),
        removals=(value("code == 49 or bool(for_code(code).retriable)"),),
    ),
)
