"""Bar and line charts as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

_WIDTH, _ROW, _TOP, _LEFT, _BAR = 860, 30, 64, 250, 360
_INK, _FILL, _BACK = "#1f2933", "#2b7a9b", "#e6ecf0"
_COLORS = ("#2b7a9b", "#c8553d", "#6a994e", "#7b5ea7")
_PLOT_LEFT, _PLOT_WIDTH, _PLOT_HEIGHT = 50, 750, 260


class Bar(NamedTuple):
    """A bar: its label on the left, the share from 0 to 1 that it shows, and a text on the right."""

    label: str
    share: float
    value_text: str


def bar_chart(title: str, subtitle: str, bars: Sequence[Bar]) -> str:
    """Return an SVG document with the bars, one below the other."""
    height = _TOP + _ROW * len(bars) + 16
    rows = "".join(_row(_TOP + _ROW * at, bar) for at, bar in enumerate(bars))
    return _document(title, subtitle, height, rows)


class Line(NamedTuple):
    """A line: its label, and its points (x, y), sorted by x, with y >= 0."""

    label: str
    points: Sequence[tuple[float, float]]


def line_chart(title: str, subtitle: str, lines: Sequence[Line], marks: Sequence[tuple[float, str]]) -> str:
    """Return an SVG document with the lines. `marks`: labels of places on the x axis.

    The lines must have at least two different x.
    """
    points = [point for line in lines for point in line.points]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    step, steps = _levels(max(y for _, y in points))

    def at(x: float, y: float) -> tuple[float, float]:
        right, up = (x - first) / (last - first), y / (step * steps)
        return _PLOT_LEFT + _PLOT_WIDTH * right, _TOP + _PLOT_HEIGHT * (1 - up)

    levels = [_level(at(first, step * number)[1], f"{step * number:,.6g}") for number in range(steps + 1)]
    places = [_place(at(x, 0)[0], text) for x, text in marks if first <= x <= last]
    drawn = [_line(number, line.label, [at(*point) for point in line.points]) for number, line in enumerate(lines)]
    return _document(title, subtitle, _TOP + _PLOT_HEIGHT + 60, "".join(levels + places + drawn))


def _levels(largest: float) -> tuple[float, int]:
    """Return the distance between levels, 1, 2 or 5 times a power of ten, and how many reach the value: 5 at most."""
    wanted = max(largest, 1) / 5
    power = 10.0 ** floor(log10(wanted))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= wanted)
    return step, ceil(max(largest, 1) / step)


def _row(top: int, bar: Bar) -> str:
    baseline, wide = top + 16, _BAR * min(max(bar.share, 0.0), 1.0)
    return (
        f'<text x="{_LEFT - 10}" y="{baseline}" text-anchor="end">{escape(bar.label)}</text>'
        f'<rect x="{_LEFT}" y="{top + 2}" width="{_BAR}" height="20" fill="{_BACK}"/>'
        f'<rect x="{_LEFT}" y="{top + 2}" width="{wide:.1f}" height="20" fill="{_FILL}"/>'
        f'<text x="{_LEFT + _BAR + 10}" y="{baseline}">{escape(bar.value_text)}</text>'
    )


def _document(title: str, subtitle: str, height: int, content: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="13" fill="{_INK}" role="img">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text x="16" y="26" font-size="17" font-weight="bold">{escape(title)}</text>'
        f'<text x="16" y="46">{escape(subtitle)}</text>{content}</svg>\n'
    )


def _level(y: float, text: str) -> str:
    return (
        f'<line x1="{_PLOT_LEFT}" x2="{_PLOT_LEFT + _PLOT_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_BACK}"/>'
        f'<text x="{_PLOT_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'
    )


def _place(x: float, text: str) -> str:
    bottom = _TOP + _PLOT_HEIGHT
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom + 6}" stroke="{_BACK}"/>'
        f'<text x="{x + 4:.1f}" y="{bottom + 16}">{escape(text)}</text>'
    )


def _line(number: int, label: str, points: Sequence[tuple[float, float]]) -> str:
    color, bottom = _COLORS[number % len(_COLORS)], _TOP + _PLOT_HEIGHT + 44
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    left = _PLOT_LEFT + 90 * number
    return (
        f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>'
        f'<rect x="{left}" y="{bottom - 9}" width="18" height="4" fill="{color}"/>'
        f'<text x="{left + 24}" y="{bottom}">{escape(label)}</text>'
    )
