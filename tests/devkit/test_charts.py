"""Charts."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tidegate.devkit.charts import Line, line_chart

pytestmark = pytest.mark.fast

SVG = "{http://www.w3.org/2000/svg}"


def drawn(lines: list[Line]) -> ElementTree.Element:
    return ElementTree.fromstring(line_chart("a <b>", "&", lines, [(0, "left"), (10, "right"), (11, "outside")]))


def test_lines_share_their_axes_which_begin_at_zero_and_end_at_a_round_number() -> None:
    found = drawn([Line("x<y", ((0, 0), (5, 43), (10, 20))), Line("z", ((0, 50), (10, 0)))])
    points = [line.get("points", "").split() for line in found.iter(f"{SVG}polyline")]
    assert points == [["50.0,324.0", "425.0,100.4", "800.0,220.0"], ["50.0,64.0", "800.0,324.0"]]
    said = [text.text for text in found.iter(f"{SVG}text")]
    assert said[2:] == ["0", "10", "20", "30", "40", "50", "left", "right", "x<y", "z"]


def test_lines_that_are_all_zero_lie_on_the_axis() -> None:
    (line,) = drawn([Line("none", ((0, 0), (10, 0)))]).iter(f"{SVG}polyline")
    assert line.get("points") == "50.0,324.0 800.0,324.0"
