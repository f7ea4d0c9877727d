"""Check the names that users choose, and derive names from an application and an operator: ids, headers, paths."""

from __future__ import annotations

import re

from tidegate.contracts.errors import InvalidValue

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_MODULE = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
FUNCTION = rf"^{_MODULE}:[A-Za-z_]\w*$"
"""The pattern of a function's name, `module:function`."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVER = re.compile(r"(\w+://)?(\[[^\s\[\]]+\]|[^\s:/\[\]]+)(:(?P<port>\d{1,5}))?", re.ASCII)
NAME_FORM = "at most 63 characters of a-z, 0-9 and _, beginning with a letter"
"""What a name may consist of, for messages."""

HEADER_OPERATOR = "tidegate-operator"
HEADER_BATCH = "tidegate-batch"
HEADER_SEQ = "tidegate-seq"
HEADER_CAUSE = "tidegate-cause"
HEADER_PARTITION = "tidegate-partition"
HEADER_WINDOW_START = "tidegate-window-start"
HEADER_WINDOW_END = "tidegate-window-end"
HEADER_REDRIVEN = "tidegate-redriven"
HEADER_ERROR_MESSAGE = "__streams.errors.message"
HEADER_ERROR_TOPIC = "__streams.errors.topic"
HEADER_ERROR_PARTITION = "__streams.errors.partition"
HEADER_ERROR_OFFSET = "__streams.errors.offset"
COMMIT_METADATA_KEY = "tidegate"


def is_name(text: str) -> bool:
    """Return whether the text can be a folder, a SQL view and a Kafka id: a-z, 0-9, _; a letter first; at most 63."""
    return _NAME.fullmatch(text) is not None


def name_problem(text: str) -> InvalidValue | None:
    """Return why the text cannot name an application or an operator; None if it can."""
    return None if is_name(text) else InvalidValue("not a valid name", f"use {NAME_FORM}")


def topic_problem(text: str) -> InvalidValue | None:
    """Return why Kafka does not allow the text as the name of a topic; None if it does."""
    if _TOPIC.fullmatch(text) is not None and text not in (".", ".."):
        return None
    return InvalidValue(
        "not a valid topic name",
        "use at most 249 characters of A-Z, a-z, 0-9, '.', '_' and '-', such as carrier-updates",
    )


def field_problem(text: str) -> InvalidValue | None:
    """Return why the text cannot name a field of a JSON value; None if it can."""
    remedy = "write the name of a top-level field of the JSON values"
    return None if text.strip() else InvalidValue("no field is named", remedy)


def path_problem(text: str) -> InvalidValue | None:
    """Return why the text cannot lead to a field within a JSON value; None if it can."""
    if all(name.strip() for name in text.split(".")):
        return None
    return InvalidValue("a name is missing in the path", "write names separated by dots, such as weather.gust")


def module_problem(text: str) -> InvalidValue | None:
    """Return why the text cannot name a module; None if it can."""
    if re.fullmatch(_MODULE, text) is not None:
        return None
    return InvalidValue("not the name of a module", "write the name of a module alone, such as gates")


def function_problem(text: str) -> InvalidValue | None:
    """Return why the text cannot name a function of a module; None if it can."""
    if re.fullmatch(FUNCTION, text) is not None:
        return None
    return InvalidValue("not the name of a function", "write module:function, such as gates:worst")


def servers_problem(text: str) -> InvalidValue | None:
    """Return why the text does not name Kafka's brokers; None if it does."""
    servers = [server.strip() for server in text.split(",") if server.strip()]
    if not servers:
        return InvalidValue("it names no broker", "write HOST:PORT, or several of them, separated by commas")
    if not all(_is_server(server) for server in servers):
        remedy = "write HOST:PORT with a port from 1 to 65535, or several of them, separated by commas"
        return InvalidValue("not the address of a broker", remedy)
    return None


def _is_server(text: str) -> bool:
    """Return whether the text is an address; its port defaults to 9092, as in Kafka's clients."""
    found = _SERVER.fullmatch(text)
    return found is not None and 1 <= int(found["port"] or "9092") <= 65_535


def group_id(application: str, operator: str) -> str:
    """Return the consumer group that holds an operator's input offsets and publication marks."""
    return f"{application}-{operator}"


def transactional_id(application: str, operator: str, partition: int) -> str:
    """Return the transactional id for the output of one partition."""
    return f"{application}-{operator}-{partition}"


def redrive_group_id(application: str, operator: str) -> str:
    """Return the consumer group that holds the marks of redriven records, i.e. records that were sent back."""
    return f"{group_id(application, operator)}-redrive"


def redrive_transactional_id(application: str, operator: str, partition: int) -> str:
    """Return the transactional id with which a partition's records are redriven."""
    return f"{redrive_group_id(application, operator)}-{partition}"


def app_transaction_id(operator: str) -> str:
    """Return the id of the Delta application transaction whose version is the operator's newest batch."""
    return f"tidegate/{operator}"


MIXED_FOLDER = "data"
"""The folder of all data files of a log of format 3, relative to the log."""


def partition_folder(kind: str, partition: int) -> str:
    """Return the folder of the data files of one kind and partition in a partitioned log, relative to the log."""
    return f"kind={kind}/partition={partition}"
