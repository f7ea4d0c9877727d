"""Kafka's two transaction protocols."""

from tests.rules.rule import Chapter, Rule, tests, without

_FILE, _HERE = "runtime/kafka/transactions", "runtime/test_transaction_protocols"

RULES = (
    Rule(
        name="the protocol follows the broker's finalised feature",
        chapter=Chapter.TRANSACTIONS,
        tests=(
            *tests(_HERE, "the_protocol_is_that_of_the_broker"),
            *tests("runtime/test_kafka_transactions", "the_protocol_follows_the_finalised_feature"),
        ),
        removals=(
            without(_FILE, "version=2 if client.transaction_version() == 2 else 1,", "version=2,"),
            without("runtime/kafka/client", 'return 2 if levels.get("transaction.version", 0) >= 2 else 1', "return 2"),
        ),
    ),
    Rule(
        name="request versions follow from the protocol",
        chapter=Chapter.TRANSACTIONS,
        tests=tests(_HERE, "request_versions_follow_from_the_protocol"),
        removals=(
            without(_FILE, 'return {"max_version": _LAST_OF_VERSION_1[request]}', "return {}"),
            without(
                _FILE,
                'return {"min_version": _ONLY_OF_VERSION_2[request], "max_version": _ONLY_OF_VERSION_2[request]}',
                "return {}",
            ),
        ),
    ),
    Rule(
        name="version 2 announces neither partitions nor offsets",
        chapter=Chapter.TRANSACTIONS,
        tests=tests(_HERE, "version_1_announces_partitions_and_offsets_and_version_2_neither"),
        removals=(
            without(
                _FILE,
                " if producer.version == 1 else producer\n",
                "\n",
            ),
            without(
                _FILE,
                "    if producer.version == 1:\n        producer = _add_offsets",
                "    if True:\n        producer = _add_offsets",
            ),
        ),
    ),
    Rule(
        name="version 1 announces partitions and offsets first",
        chapter=Chapter.TRANSACTIONS,
        tests=tests(_HERE, "version_1_announces_partitions_and_offsets_and_version_2_neither"),
        removals=(
            without(_FILE, "    producer = _join(client, producer, topic, partition, deadline)\n", ""),
            without(_FILE, "producer = _add_offsets(client, producer, group, deadline)"),
        ),
    ),
    Rule(
        name="in version 2 sequences start from 0 in every transaction",
        chapter=Chapter.TRANSACTIONS,
        tests=tests(_HERE, "in_version_2_a_transaction_begins_at_sequence_0_with_the_end_s_id_and_epoch"),
        removals=(without(_FILE, "epoch=answer.producer_epoch, sequences={}", "epoch=answer.producer_epoch"),),
    ),
    Rule(
        name="in version 2 producer id and epoch are those of the answer to EndTxn",
        chapter=Chapter.TRANSACTIONS,
        tests=tests(_HERE, "in_version_2_a_transaction_begins_at_sequence_0_with_the_end_s_id_and_epoch"),
        removals=(
            without(_FILE, "opened=False, producer_id=answer.producer_id, epoch", "opened=False, epoch"),
            without(
                _FILE,
                "producer_id=answer.producer_id, epoch=answer.producer_epoch, sequences={}",
                "producer_id=answer.producer_id, sequences={}",
            ),
        ),
    ),
    Rule(
        name="in version 1 sequences go on, modulo 2^31",
        chapter=Chapter.TRANSACTIONS,
        tests=(
            *tests(_HERE, "in_version_1_sequences_go_on_modulo_2_to_the_31"),
            *tests("kernels/test_record_batch", "sequences_go_on_modulo_two_to_the_31"),
        ),
        removals=(
            without(_FILE, "get(topic, 0) + batch.count) % _SEQUENCES", "get(topic, 0) + batch.count)"),
            without(
                "kernels/record_format/record_encoder", "(base_sequence + start) % _SEQUENCES", "base_sequence + start"
            ),
            without(
                _FILE,
                "        return replace(producer, opened=False)",
                "        return replace(producer, opened=False, sequences={})",
            ),
        ),
    ),
    Rule(
        name="CONCURRENT_TRANSACTIONS is waited for, whatever was asked",
        chapter=Chapter.TRANSACTIONS,
        tests=tests(_HERE, "a_concurrent_transaction_is_waited_for"),
        removals=(
            without(
                "runtime/kafka/retries",
                "return bool(for_code(code).retriable)",
                "return code != 51 and bool(for_code(code).retriable)",
            ),
        ),
    ),
    Rule(
        name="a producer id that the broker has forgotten is initialised, not asked again",
        chapter=Chapter.TRANSACTIONS,
        tests=(
            *tests(_HERE, "a_forgotten_producer_id_is_an_error_at_once"),
            *tests("runtime/test_publication", "after_a_forgotten_producer_id_the_next_request_is_init_producer_id"),
        ),
        removals=(
            without(
                "runtime/kafka/retries",
                "return bool(for_code(code).retriable)",
                "return code == 49 or bool(for_code(code).retriable)",
            ),
        ),
    ),
)
