"""Time lines as SVG: lanes over one axis of event time, with dots, bars, lines and words on them."""

from __future__ import annotations

from html import escape

WIDTH, LEFT, RIGHT = 860, 150, 30
INK, GREY, BACK, BLUE, GREEN, RED, ORANGE = "#1f2933", "#7b8794", "#e4e9ee", "#2b7a9b", "#4c8a3f", "#c0392b", "#d98324"
MINUTE = 60_000


class Canvas:
    """A picture of a given height; times are minutes, shown from `first` to `last`."""

    def __init__(self, title: str, height: int, first: float = 0, last: float = 1, left: int = LEFT) -> None:
        self._title, self._height, self._left = title, height, left
        self._first, self._last = first, last
        self._parts: list[str] = []

    def x(self, minute: float) -> float:
        """Where a time is."""
        share = (minute - self._first) / (self._last - self._first)
        return self._left + (WIDTH - self._left - RIGHT) * share

    def words(
        self, x: float, y: float, text: str, color: str = INK, anchor: str = "middle", bold: bool = False
    ) -> None:
        """Text whose base line is at y."""
        weight = ' font-weight="bold"' if bold else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'
        )

    def lane(self, y: float, text: str, line: bool = True) -> None:
        """A lane's name on the left, and its line."""
        self.words(12, y + 5, text, anchor="start")
        if line:
            self.line(self._left, y, WIDTH - RIGHT, y, BACK)

    def line(self, x1: float, y1: float, x2: float, y2: float, color: str = INK, dashed: bool = False) -> None:
        """A straight line."""
        self._stroke(x1, y1, x2, y2, color, ' stroke-dasharray="5 4"' if dashed else "")

    def arrow(self, x1: float, y1: float, x2: float, y2: float, color: str = INK) -> None:
        """A line with a head at its end."""
        self._stroke(x1, y1, x2, y2, color, f' marker-end="url(#head{color[1:]})"')

    def _stroke(self, x1: float, y1: float, x2: float, y2: float, color: str, more: str) -> None:
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self._parts.append(f'<line {ends} stroke="{color}" stroke-width="1.5"{more}/>')

    def dot(self, x: float, y: float, text: str = "", color: str = BLUE, above: bool = True) -> None:
        """A record, with what it is above it or below."""
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{color}"/>')
        if text:
            self.words(x, y - 17 if above else y + 22, text, color)

    def bar(self, x1: float, x2: float, y: float, text: str = "", color: str = BLUE, high: float = 24) -> None:
        """Something that lasts from x1 to x2, around y."""
        self._parts.append(
            f'<rect x="{x1:.1f}" y="{y - high / 2:.1f}" width="{max(x2 - x1, 1):.1f}" height="{high}" rx="3" '
            f'fill="{color}" fill-opacity="0.18" stroke="{color}"/>'
        )
        if text:
            self.words((x1 + x2) / 2, y + 5, text)

    def axis(self, y: float, step: float, text: str) -> None:
        """The axis of time, with a tick every so many minutes."""
        self.words(12, y + 5, text, GREY, anchor="start")
        self.line(self._left, y, WIDTH - RIGHT, y, GREY)
        minute = -(-self._first // step) * step
        while minute <= self._last:
            self.line(self.x(minute), y - 4, self.x(minute), y + 4, GREY)
            self.words(self.x(minute), y + 20, clock(minute), GREY)
            minute += step

    def svg(self) -> str:
        """The document."""
        heads = "".join(
            f'<marker id="head{color[1:]}" markerWidth="9" markerHeight="9" refX="7" refY="4" orient="auto">'
            f'<path d="M0,0 L8,4 L0,8 z" fill="{color}"/></marker>'
            for color in (INK, GREY, BLUE, GREEN, RED, ORANGE)
            if f"#head{color[1:]})" in "".join(self._parts)
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self._height}" width="{WIDTH}" '
            f'height="{self._height}" font-family="sans-serif" font-size="14" role="img">\n'
            f"<title>{escape(self._title)}</title><defs>{heads}</defs>\n"
            f'<rect width="100%" height="100%" fill="#ffffff"/>\n'
            f'<text x="12" y="26" font-size="17" font-weight="bold" fill="{INK}">{escape(self._title)}</text>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )


def clock(minute: float) -> str:
    """10:05 for the 605th minute."""
    return f"{int(minute) // 60}:{int(minute) % 60:02d}"
