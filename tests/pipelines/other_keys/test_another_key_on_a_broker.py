"""A stream with another key goes on through a topic; its operators die between log and output."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from kafka.partitioner.default import murmur2

from tests.kill.service import run_command
from tidegate.devkit.produce_consume import read_all, write_all

pytestmark = [pytest.mark.broker, pytest.mark.spark]

BEFORE, BEHIND = 3, 4
"""The partitions of the input, and of the topic by the new key."""
HOUR, BEGIN = 3_600_000, 1_356_998_400_000
PROGRAM = """
import tidegate as tg

app = tg.Application("shop", kafka={kafka!r}, lake="./lake", keep_output="forever", control=None)
orders = app.stream({orders!r}, name="orders", value=tg.json({{"customer": "string"}}), dead_letters={letters!r})
by_customer = orders.select_key("customer").through({by_customer!r}, partitions=4, name="counts")
by_customer.window(tg.tumbling("1h", grace="1h")).count().to({counts!r})
"""


def run(program: Path, operator: str, kill_at: str = "") -> None:
    """Run an operator until it has caught up, or dies at a kill point."""
    command = ("run", f"{program}:app", "--operator", operator, "--until-caught-up")
    run_command(*command, folder=program.parent, kill_at=kill_at)


def orders(count: int, begin: int) -> list[tuple[int, bytes, bytes, int]]:
    """Orders of an hour, by number, in any partition; some are of no customer."""
    rng = random.Random(begin)
    customers: list[str | None] = [*(f"customer {number}" for number in range(12)), None]
    return [
        (
            number % BEFORE,
            b"%d" % number,
            json.dumps({"customer": rng.choice(customers), "number": number}).encode(),
            BEGIN + rng.randrange(HOUR),
        )
        for number in range(begin, begin + count)
    ]


def test_each_customer_s_orders_are_counted_once_through_deaths_between_log_and_output(
    broker: Any, topic: Any, tmp_path: Path
) -> None:
    kafka, program = {"bootstrap.servers": broker.bootstrap}, tmp_path / "app.py"
    names = {
        "orders": topic(partitions=BEFORE),
        "by_customer": topic(partitions=BEHIND),
        "counts": topic(partitions=BEHIND),
        "letters": topic(partitions=BEHIND),
    }
    program.write_text(PROGRAM.format(kafka=broker.bootstrap, **names))
    first, second = orders(300, 0), orders(300, 300)
    write_all(kafka, names["orders"], first)
    run(program, "orders", kill_at="after_commit")  # nothing of the batch is published
    assert not any(read_all(kafka, names["by_customer"]))
    run(program, "orders", kill_at="in_settling_before_end")  # and while it is published from the log
    run(program, "orders")
    run(program, "counts", kill_at="after_commit")
    write_all(kafka, names["orders"], second)
    run(program, "orders", kill_at="after_half_of_output")
    run(program, "orders")
    run(program, "counts")

    by_customer = read_all(kafka, names["by_customer"])
    given = [(json.loads(value)["customer"], value) for _, _, value, _ in first + second]
    kept = Counter((customer.encode(), value) for customer, value in given if customer is not None)
    assert Counter((key, value) for rows in by_customer for key, value, _ in rows) == kept
    for partition, rows in enumerate(by_customer):
        assert {(murmur2(key) & 0x7FFFFFFF) % BEHIND for key, _, _ in rows if key is not None} <= {partition}

    due = Counter(customer.encode() for customer, _ in given if customer is not None)
    found: dict[bytes | None, list[int]] = defaultdict(list)
    for rows in read_all(kafka, names["counts"]):
        for key, value, _ in rows:
            found[key].append(int(value or b"-1"))
    assert found == {customer: list(range(1, count + 1)) for customer, count in due.items()}

    refused = [value for rows in read_all(kafka, names["letters"]) for _, value, _ in rows]
    assert sorted(refused) == sorted(value for customer, value in given if customer is None)
