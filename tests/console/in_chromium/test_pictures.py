"""The pictures of the console in the documentation are those of today's pages.

A picture has the text of its page in it. If that is no longer the text of the page, the test makes the picture anew,
and fails once.
"""

from __future__ import annotations

import random
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ViewportSize

from tests.console.in_chromium.conftest import opened, served
from tests.console.logs import Written, application, record
from tidegate.contracts.records import Row

pytestmark = [pytest.mark.browser, pytest.mark.process]

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
SIZE = ViewportSize(width=1280, height=900)
UPDATES = {
    "kind": "suppression",
    "input": "departures",
    "output": "carrier-updates",
    "until": {"time_limit": "30s"},
    "max_lateness": "20s",
}
BATCHES, CARRIERS = 120, (b"AA", b"B6", b"DL", b"EV", b"MQ", b"UA", b"US", b"WN")
PAGES = {
    "console-operator": f"/operators/carrier_updates?batch={BATCHES}",
    "console-key": f"/operators/carrier_updates/key?key=AA&batch={BATCHES}",
}
_KEYWORD = b"Page\0"
"""The keyword of the PNG's text with the page in it."""

_HEADER_BYTES = 8 + 25
"""Bytes of a PNG before its first chunk that may be a text: the signature, and the header with its length and CRC."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console of an operator that has read two minutes of departures, some of them late."""
    given, dice = application(tmp_path_factory.mktemp("pictures"), carrier_updates=UPDATES), random.Random(2013)
    log = Written(given, "carrier_updates")
    for second in range(BATCHES):
        delays = [dice.randrange(-5, 90) for _ in range(dice.randrange(1, 9))]
        offsets = enumerate(delays, len(log.records[0]))
        log.batch([_departure(dice, second, delay, offset) for offset, delay in offsets])
    with served(given, "flights.yaml") as address:
        yield address


def _departure(dice: random.Random, second: int, delay: int, offset: int) -> Row:
    """A record that is at times half a minute older than the newest ones."""
    carrier, age_s = dice.choice(CARRIERS), dice.randrange(12) ** 2 // 4
    return record(carrier, b'{"delay_min": %d}' % delay, max(0, second - age_s), offset)


@pytest.mark.parametrize("name", PAGES)
def test_a_picture_in_the_documentation_is_that_of_todays_page(chromium: Browser, site: str, name: str) -> None:
    page, problems = opened(chromium, site, viewport=SIZE, color_scheme="light")
    page.goto(site + PAGES[name])
    page.wait_for_load_state("networkidle")
    text = re.sub(r"\d+d ago", "", page.inner_text("body")).encode()
    picture = PICTURES / f"{name}.png"
    is_todays = picture.is_file() and text_in(picture.read_bytes()) == text
    if not is_todays:
        picture.write_bytes(with_text(page.screenshot(), text))
    assert is_todays, f"{picture.name} has been made anew: look at it, and commit it"
    assert problems == []


def with_text(png: bytes, text: bytes) -> bytes:
    """The picture with the text in it, compressed."""
    content = b"zTXt" + _KEYWORD + b"\0" + zlib.compress(text)
    chunk = struct.pack(">I", len(content) - 4) + content + struct.pack(">I", zlib.crc32(content))
    return png[:_HEADER_BYTES] + chunk + png[_HEADER_BYTES:]


def text_in(png: bytes) -> bytes:
    """The text that `with_text` has put into the picture; empty if there is none."""
    (length,) = struct.unpack(">I", png[_HEADER_BYTES : _HEADER_BYTES + 4])
    content = png[_HEADER_BYTES + 4 : _HEADER_BYTES + 8 + length]
    start = b"zTXt" + _KEYWORD + b"\0"
    return zlib.decompress(content.removeprefix(start)) if content.startswith(start) else b""
