"""What is fuzzed: properties of the suite, of operators with histories at the edges of what they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests import test_versioned_table, test_window_store
from tests.fuzzing.state_files import test_a_damaged_header_reads_as_an_earlier_one_or_none
from tests.kernels import collisions, test_hash_index, test_version_chains
from tests.kernels.codecs import (
    test_avro,
    test_json_columns,
    test_json_shapes,
    test_json_text,
    test_primitives,
    test_protobuf,
)
from tests.kernels.record_format import test_record_batch
from tests.laws import test_laws
from tests.operators import test_damage
from tidegate.operators.testing import strategies
from tidegate.operators.testing.cases import Case, cases
from tidegate.testing.memory_log import MemoryLog

Target = Callable[[bytes], Any]
"""Plays the case that the bytes amount to; raises where it shows a fault."""

PROPERTIES: tuple[Any, ...] = (
    test_record_batch.test_encoded_records_are_decoded_for_any_compression_and_any_cut,
    test_record_batch.test_damaged_bytes_end_in_an_error_or_in_records_inside_the_bytes,
    test_record_batch.test_any_bytes_at_all_end_in_an_error_or_in_nothing,
    test_record_batch.test_the_same_input_gives_the_same_bytes,
    test_record_batch.test_headers_round_trip,
    test_record_batch.test_a_damaged_block_is_an_error,
    test_json_text.test_bytes_are_json_when_the_oracle_reads_them,
    test_json_text.test_a_json_member_is_found_as_by_the_oracle,
    test_json_text.test_base64_is_that_of_the_oracle,
    test_json_columns.test_columns_are_what_another_parser_reads,
    test_json_columns.test_bytes_are_json_when_another_parser_reads_them_and_nothing_fails,
    test_json_shapes.test_values_are_read_alike_alone_and_behind_others,
    test_primitives.test_a_value_is_read_as_another_reader_does_or_refused,
    test_avro.test_values_are_read_as_by_fastavro_and_only_wanted_paths,
    test_avro.test_a_damaged_value_is_read_as_by_fastavro_or_refused,
    test_avro.test_values_of_an_older_schema_are_read_as_the_specification_resolves_them,
    test_protobuf.test_values_are_read_as_by_google_s_library_and_only_wanted_paths,
    test_protobuf.test_a_damaged_value_is_read_as_by_google_s_library_or_refused,
    test_protobuf.test_every_occurrence_of_a_field_is_read_and_refused_as_by_google_s_library,
    test_hash_index.test_probing_finds_exactly_the_slots_with_the_fingerprint,
    test_version_chains.test_the_index_and_the_blocks_can_be_rebuilt,
    test_window_store.test_every_put_is_accepted_and_kept_as_by_the_oracle,
    test_versioned_table.test_reads_are_those_of_the_reference,
    test_a_damaged_header_reads_as_an_earlier_one_or_none,
)

_make_log = {"make_log": lambda operator: MemoryLog(operator.slot)}
OF_OPERATORS: tuple[tuple[Any, dict[str, Any]], ...] = (
    (test_laws.test_law_1_an_operator_equals_its_reference, {}),
    (test_laws.test_law_2_the_cut_into_batches_changes_nothing, {}),
    (test_laws.test_law_3_a_restart_at_any_batch_changes_nothing_that_follows, _make_log),
    (test_laws.test_law_5_compaction_at_any_point_changes_nothing_that_follows, _make_log),
    (test_laws.test_law_8_every_record_is_counted_once_and_late_and_rejected_records_are_rows, {}),
    (test_damage.test_a_state_between_two_batches_has_no_damage, {}),
    (test_damage.test_a_changed_word_is_detected_or_changes_nothing, {}),
    (test_damage.test_a_flipped_byte_is_detected_or_changes_nothing, {}),
)
"""Properties of every operator, with what else they are given."""


def targets() -> dict[str, Target]:
    """Return all targets by name."""
    found: dict[str, Target] = {test.__name__: test.hypothesis.fuzz_one_input for test in PROPERTIES}
    for kind, case in cases().items():
        for test, more in OF_OPERATORS:
            found[f"{test.__name__} [{kind}]"] = _of(test.hypothesis.inner_test, _at_edges(case), more)
    return found


def _of(inner: Callable[..., None], case: Case, more: dict[str, Any]) -> Target:
    @given(data=st.data())
    def test_property(data: st.DataObject) -> None:
        partial(inner, case=case, data=data, **more)()

    return test_property.hypothesis.fuzz_one_input  # type: ignore[attr-defined, no-any-return]


def _at_edges(case: Case) -> Case:
    """Return the case with its own histories, and such with keys at the edges."""
    first, second = collisions.keys_with_equal_fingerprints(2, b"%16d" % 1)
    return replace(case, histories=case.histories | strategies.with_keys_at_edges(case.histories, (first, second)))
