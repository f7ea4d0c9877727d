"""Keys of windows: where a record names its window, and what a log goes on with."""

from tests.rules.removals import dropped, replaced, value
from tests.rules.rule import Chapter, Rule, tests

_KEYS, _BYTES, _CHANGES = "operators/keys", "kernels/window_keys", "runtime/configuration/changes"
_APPLICATION, _CONFIG = "runtime/configuration/application", "contracts/config"

RULES = (
    Rule(
        slug="windows-in-key",
        name="windows are part of the key",
        chapter=Chapter.KEYS,
        tests=tests(
            "operators/test_windowed_keys",
            "no_two_windows_share_a_slot",
            "a_history_keeps_every_window_s_versions_apart",
            "a_windowed_stream_meets_the_version_of_its_own_window",
        ),
        removals=(value("0"),),
    ),
    Rule(
        slug="unexpected-window",
        name="a record of a window that nobody spoke of is rejected",
        chapter=Chapter.KEYS,
        tests=tests(
            "operators/test_windowed_keys",
            "records_of_windows_are_rejected_with_the_remedy_where_nobody_spoke_of_windows",
        ),
        removals=(value("False"),),
    ),
    Rule(
        slug="log-without-windows",
        name="a log from before goes on to leave windows out of keys",
        chapter=Chapter.KEYS,
        tests=tests("runtime/test_feeds", "a_log_from_before_goes_on_to_ignore_windows_until_the_file_says_otherwise"),
        removals=(
            value("config", way="compared"),
            value("settings", way="opened"),
        ),
    ),
    Rule(
        slug="key-kind-fixed",
        name="keys of windows and plain keys never follow each other in a log",
        chapter=Chapter.KEYS,
        tests=tests("runtime/test_feeds", "keys_of_windows_and_plain_keys_never_follow_each_other_under_one_name"),
        removals=(dropped("'windows':"),),
    ),
    Rule(
        slug="kafka-window-bytes",
        name="keys of windows are Kafka's bytes",
        chapter=Chapter.KEYS,
        tests=tests(
            "kernels/test_window_keys",
            "keys_are_written_as_kafka_streams_writes_them",
            "keys_of_sessions_are_read_as_kafka_streams_reads_them",
        ),
        removals=(
            replaced("[end, start]", "[start, end]", way="session"),
            replaced("SESSION_BYTES", "START_BYTES", way="size"),
        ),
    ),
)
