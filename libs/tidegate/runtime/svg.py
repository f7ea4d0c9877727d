"""A bar chart as a picture that every browser shows. May import: the standard library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _ROW, _TOP, _LEFT, _BAR = 860, 30, 64, 250, 360
_INK, _FILL, _BACK = "#1f2933", "#2b7a9b", "#e6ecf0"


class Bar(NamedTuple):
    """A share, 0 to 1, with what it is of on the left and what is to be known of it on the right."""

    label: str
    share: float
    said: str


def bar_chart(title: str, subtitle: str, bars: Sequence[Bar]) -> str:
    """The SVG document of the bars, one below the other."""
    height = _TOP + _ROW * len(bars) + 16
    rows = "".join(_row(_TOP + _ROW * at, bar) for at, bar in enumerate(bars))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="13" fill="{_INK}" role="img">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text x="16" y="26" font-size="17" font-weight="bold">{escape(title)}</text>'
        f'<text x="16" y="46">{escape(subtitle)}</text>{rows}</svg>\n'
    )


def _row(top: int, bar: Bar) -> str:
    baseline, wide = top + 16, _BAR * min(max(bar.share, 0.0), 1.0)
    return (
        f'<text x="{_LEFT - 10}" y="{baseline}" text-anchor="end">{escape(bar.label)}</text>'
        f'<rect x="{_LEFT}" y="{top + 2}" width="{_BAR}" height="20" fill="{_BACK}"/>'
        f'<rect x="{_LEFT}" y="{top + 2}" width="{wide:.1f}" height="20" fill="{_FILL}"/>'
        f'<text x="{_LEFT + _BAR + 10}" y="{baseline}">{escape(bar.said)}</text>'
    )
