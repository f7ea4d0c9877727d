"""Keys of windows: where a record names its window, and what a log goes on with."""

from tests.rules.removals import dropped, replaced, value
from tests.rules.rule import Chapter, Rule, tests

RULES = (
    Rule(
        slug="windows-in-key",
        name="windows are part of the key",
        chapter=Chapter.KEYS,
        tests=tests(
            "operators/test_windowed_keys",
            "no_two_windows_share_a_slot",
            "a_history_keeps_every_window_s_versions_apart",
            "a_windowed_stream_is_joined_with_the_version_of_its_own_window",
        ),
        removals=(value("0"),),
    ),
    Rule(
        slug="unexpected-window",
        name="a windowed record is rejected if windows are not configured",
        chapter=Chapter.KEYS,
        tests=tests(
            "operators/test_windowed_keys",
            "windowed_records_are_rejected_with_the_remedy_if_windows_are_not_configured",
        ),
        removals=(value("False"),),
    ),
    Rule(
        slug="keyless-has-no-window",
        name="a record without a key is not rejected for a window that it names",
        chapter=Chapter.KEYS,
        tests=tests(
            "operators/test_windowed_keys",
            "a_record_without_a_key_has_no_window_whatever_its_headers_name",
        ),
        removals=(dropped("batch.key_length >= 0"),),
    ),
    Rule(
        slug="log-without-windows",
        name="an older log keeps leaving windows out of keys",
        chapter=Chapter.KEYS,
        tests=tests(
            "runtime/configuration/test_feeds", "an_older_log_keeps_ignoring_windows_until_the_file_says_otherwise"
        ),
        removals=(
            value("config", way="compared"),
            value("settings", way="opened"),
        ),
    ),
    Rule(
        slug="key-kind-fixed",
        name="a log never changes between windowed keys and plain keys",
        chapter=Chapter.KEYS,
        tests=tests("runtime/configuration/test_feeds", "an_operator_cannot_change_between_windowed_and_plain_keys"),
        removals=(dropped("'windows':"),),
    ),
    Rule(
        slug="kafka-window-bytes",
        name="windowed keys are written in Kafka's format",
        chapter=Chapter.KEYS,
        tests=tests(
            "kernels/test_window_keys",
            "keys_are_written_in_the_format_of_kafka_streams",
            "keys_of_sessions_are_read_as_kafka_streams_reads_them",
        ),
        removals=(
            replaced("[end, start]", "[start, end]", way="session"),
            replaced("SESSION_BYTES", "START_BYTES", way="size"),
        ),
    ),
)
