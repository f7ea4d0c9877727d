"""The functions that expressions may use: each gives the same result for the same arguments, everywhere and always."""

from __future__ import annotations

_OPERATORS = "+ - * / // % ** ^ & | << >> ~ || ~~ !~~ ~~* !~~* ~~~"
_NUMBERS = """
    abs acos asin atan atan2 cbrt ceil ceiling cos cot degrees exp floor greatest
    isfinite isinf isnan ln log log10 log2 least mod pi pow power radians round sign signbit sin sqrt tan
    trunc
"""
_TEXT = """
    ascii chr concat concat_ws contains ends_with hex instr
    lcase left length lower lpad ltrim
    md5 ord position prefix regexp_escape regexp_extract regexp_extract_all
    regexp_full_match regexp_matches regexp_replace replace reverse right rpad rtrim
    sha1 sha256 split split_part starts_with strip_accents strlen strpos str_split string_split substr substring
    suffix translate trim ucase unhex unicode upper
"""
_BYTES = "base64 bit_length decode encode from_base64 from_hex octet_length to_base64 to_hex"
_TIMES = """
    century date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth
    dayofweek dayofyear decade epoch epoch_ms epoch_ns epoch_us era hour isodow isoyear last_day make_date make_time
    make_timestamp make_timestamp_ms microsecond millennium millisecond minute month monthname quarter second
    strftime strptime time_bucket to_days to_hours to_microseconds to_milliseconds to_minutes to_months to_seconds
    to_weeks to_years try_strptime week weekday weekofyear year yearweek
"""
_OTHERS = """
    array_extract array_has array_length cardinality element_at if ifnull len list_contains list_element list_extract
    list_has list_position list_slice list_value map_contains map_extract map_keys map_values nullif row struct_extract
    struct_pack
"""

GROUPS = {
    "operators": _OPERATORS,
    "numbers": _NUMBERS,
    "text": _TEXT,
    "bytes": _BYTES,
    "dates and times": _TIMES,
    "objects, lists and conditions": _OTHERS,
}
"""The names, with spaces between them, by what they are for."""

ALLOWED = frozenset(" ".join(GROUPS.values()).split())
"""The names of the functions and operators that an expression may use."""
