"""Keys of windows: where a record names its window, and what a log goes on with."""

from tests.rules.rule import Chapter, Rule, tests, without

_KEYS, _BYTES, _CHANGES = "operators/keys", "kernels/window_keys", "runtime/configuration/changes"
_APPLICATION, _CONFIG = "runtime/configuration/application", "contracts/config"

RULES = (
    Rule(
        name="windows are part of the key",
        chapter=Chapter.KEYS,
        tests=tests(
            "operators/test_windowed_keys",
            "no_two_windows_share_a_slot",
            "a_history_keeps_every_window_s_versions_apart",
            "a_windowed_stream_meets_the_version_of_its_own_window",
        ),
        removals=(without(_BYTES, "data[starts[row] + place] = bounds[row, place]", "data[starts[row] + place] = 0"),),
    ),
    Rule(
        name="a record of a window that nobody spoke of is rejected",
        chapter=Chapter.KEYS,
        tests=tests(
            "operators/test_windowed_keys",
            "records_of_windows_are_rejected_with_the_remedy_where_nobody_spoke_of_windows",
        ),
        removals=(without(_KEYS, 'self._refuses = windows == "none"', "self._refuses = False"),),
    ),
    Rule(
        name="a log from before goes on to leave windows out of keys",
        chapter=Chapter.KEYS,
        tests=tests("runtime/test_feeds", "a_log_from_before_goes_on_to_ignore_windows_until_the_file_says_otherwise"),
        removals=(
            without(_CHANGES, 'return config_of(said | {"kind": config.kind, "windows": "ignore"})', "return config"),
            without(
                _APPLICATION, 'settings = {**settings, "windows": kind.windows_before(settings)}', "settings = settings"
            ),
        ),
    ),
    Rule(
        name="keys of windows and plain keys never follow each other in a log",
        chapter=Chapter.KEYS,
        tests=tests("runtime/test_feeds", "keys_of_windows_and_plain_keys_never_follow_each_other_under_one_name"),
        removals=(
            without(
                _CONFIG, """return {"windows": "windows' keys and plain ones are not held together"}""", "return {}"
            ),
        ),
    ),
    Rule(
        name="keys of windows are Kafka's bytes",
        chapter=Chapter.KEYS,
        tests=tests(
            "kernels/test_window_keys",
            "keys_are_written_as_kafka_streams_writes_them",
            "keys_of_sessions_are_read_as_kafka_streams_reads_them",
        ),
        removals=(
            without(_BYTES, "[start] if end is None else [end, start]", "[start] if end is None else [start, end]"),
            without(
                _BYTES,
                "end = _big_endian(data, behind - SESSION_BYTES)",
                "end = _big_endian(data, behind - START_BYTES)",
            ),
        ),
    ),
)
