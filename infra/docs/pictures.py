"""The pictures of the concepts, written to docs/pictures: `python -m infra.docs.pictures`.

What operators do in them is what operators did: the records of a picture are piped through the real one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.docs.canvas import BACK, BLUE, GREEN, GREY, INK, MINUTE, ORANGE, RED, RIGHT, WIDTH, Canvas, clock
from tidegate.operators.registry import config_type, operator_for
from tidegate.operators.testing.driver import Driver, Emission

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"


def driver(kind: str, read: Driver | None = None, **options: Any) -> Driver:
    """The operator of that kind, driven record by record."""
    return Driver(operator_for(config_type(kind).model_validate({"input": "in", **options})), table=read)


def pipe(driven: Driver, key: str, value: str, minute: float) -> list[Emission]:
    """What a record of that minute causes."""
    return driven.pipe(key, value, int(minute * MINUTE))


def words(value: bytes | None) -> str:
    """A key or a value as text."""
    return "" if value is None else value.decode()


def event_time() -> Canvas:
    """Records happen in one order and arrive in another."""
    happened = {"a": 600, "b": 604, "c": 611, "d": 615, "e": 622, "f": 628}
    arrived = ["a", "c", "b", "e", "d", "f"]
    canvas = Canvas("Records happen in one order and arrive in another", 245, 598, 630)
    canvas.lane(85, "event time")
    canvas.lane(180, "order of arrival")
    for name, minute in happened.items():
        before = arrived[: arrived.index(name)]
        color = ORANGE if any(happened[other] > minute for other in before) else BLUE
        x = canvas.x(600 + 5.6 * len(before))
        canvas.line(canvas.x(minute), 85, x, 180, color, dashed=True)
        canvas.dot(canvas.x(minute), 85, f"{name}  {clock(minute)}", color)
        canvas.dot(x, 180, name, color, above=False)
    canvas.words(canvas.x(614), 230, "b and d have been overtaken: they come out of order", ORANGE)
    return canvas


def stream_time() -> Canvas:
    """Stream time is the newest time so far; what is further behind it than the grace is late."""
    arriving, grace, low = [600, 610, 605, 625, 608, 640, 622, 602], 20, 575
    driven = driver("suppression", until={"time_limit": "9h"}, max_lateness=f"{grace}m")
    canvas = Canvas("Stream time only goes forward; the grace says how far behind it a record may come", 370, 0, 8.9)

    def y(minute: float) -> float:
        return 320 - 3.6 * (minute - low)

    for minute in range(580, 641, 20):
        canvas.line(canvas.x(0), y(minute), WIDTH - RIGHT, y(minute), BACK)
        canvas.words(canvas.x(0) - 8, y(minute) + 5, clock(minute), GREY, anchor="end")
    before = arriving[0]
    for at, minute in enumerate(arriving):
        late_before = len(driven.late)
        pipe(driven, "k", "1", minute)
        time = driven.stream_time / MINUTE
        for back, color in ((0, INK), (grace, ORANGE)):
            canvas.line(canvas.x(at + 0.2), y(before - back), canvas.x(at + 0.2), y(time - back), color, back > 0)
            canvas.line(canvas.x(at + 0.2), y(time - back), canvas.x(at + 1.2), y(time - back), color, back > 0)
        late = len(driven.late) > late_before
        overtaken = not late and 0 < time - minute < grace / 2
        canvas.dot(canvas.x(at + 0.7), y(minute), clock(minute), RED if late else BLUE, above=not overtaken)
        before = time
    canvas.words(12, y(610) + 5, "event time", GREY, anchor="start")
    canvas.words(canvas.x(4.3), 358, "order of arrival", GREY)
    canvas.words(canvas.x(8.25), y(640) - 8, "T", bold=True)
    canvas.words(canvas.x(8.25), y(620) - 8, "T - grace", ORANGE, bold=True)
    canvas.words(canvas.x(8.25), y(602) + 5, "late", RED, bold=True)
    return canvas


def suppression() -> Canvas:
    """Each key is held for half an hour, and its newest value leaves."""
    driven = driver("suppression", until={"time_limit": "30m"})
    arriving = [("A", "1", 600), ("B", "7", 608), ("A", "2", 612), ("A", "3", 624), ("C", "5", 630)]
    arriving += [("B", "8", 634), ("C", "6", 645), ("A", "4", 652), ("C", "9", 656), ("B", "9", 664)]
    canvas = Canvas("Suppression with until: {time_limit: 30m}: each key waits half an hour for more", 330, 595, 670)
    lanes = {"A": 90, "B": 165, "C": 240}
    for key, y in lanes.items():
        canvas.lane(y, f"key {key}")
    opened: dict[str, float] = {}
    for key, value, minute in arriving:
        left = pipe(driven, key, value, minute)
        opened.setdefault(key, minute)
        for emission in left:
            out = words(emission.key)
            y = lanes[out]
            canvas.bar(canvas.x(opened.pop(out)), canvas.x(minute), y)
            canvas.arrow(canvas.x(minute), y, canvas.x(minute), y + 32, GREEN)
            canvas.words(
                canvas.x(minute) + 8, y + 30, f"out: {words(emission.value)}", GREEN, anchor="start", bold=True
            )
        canvas.dot(canvas.x(minute), lanes[key], value)
    for key, minute in opened.items():
        canvas.bar(canvas.x(minute), WIDTH - RIGHT, lanes[key], color=GREY)
    canvas.axis(294, 10, "stream time")
    return canvas


def buffer() -> Canvas:
    """A full buffer lets the oldest key go."""
    driven = driver("suppression", buffer={"max_keys": 2, "when_full": "emit"})
    arriving = [("A", "1"), ("B", "1"), ("A", "2"), ("C", "1"), ("D", "1"), ("C", "2"), ("E", "1")]
    canvas = Canvas("Suppression's buffer with max_keys: 2 and when_full: emit", 265, 0, 7)
    for y, name in ((75, "record"), (127, "buffer, oldest"), (155, "newest"), (215, "emitted")):
        canvas.lane(y, name, line=False)
    for at, (key, value) in enumerate(arriving):
        left, x = pipe(driven, key, value, 600 + at), canvas.x(at + 0.5)
        canvas.words(x, 60, clock(600 + at), GREY)
        canvas.dot(x - 26, 76, "", BLUE)
        canvas.words(x + 10, 81, f"{key} = {value}")
        for row, held in enumerate(driven.held()):
            canvas.bar(x - 40, x + 40, 127 + 28 * row, f"{words(held['key'])} = {words(held['value'])}")
        for emission in left:
            canvas.arrow(x, 172, x, 198, GREEN)
            canvas.words(x, 220, f"{words(emission.key)} = {words(emission.value)}", GREEN, bold=True)
    canvas.words(
        canvas.x(3.5),
        252,
        "A third key does not fit: the one that has been held longest leaves, with its newest value",
        GREY,
    )
    return canvas


READINGS = [(600, "10 mi"), (660, "2 mi"), (750, "5 mi")]


def as_of_join() -> Canvas:
    """Each record meets the version that was valid at its time."""
    table = driver("table_history", history_retention="30d")
    join = driver("stream_table_join", table, table="weather", join="left")
    canvas = Canvas("An as-of join: each departure meets the reading that was valid at its own time", 265, 570, 790)
    canvas.lane(85, "table: weather")
    canvas.lane(175, "departures")
    for at, (minute, value) in enumerate(READINGS):
        pipe(table, "JFK", value, minute)
        end = canvas.x(READINGS[at + 1][0]) if at + 1 < len(READINGS) else WIDTH - RIGHT
        canvas.bar(canvas.x(minute), end, 85, f"{value}, from {clock(minute)}", GREEN)
    for minute in (585, 630, 662, 730, 765):
        (emission,) = pipe(join, "JFK", '"B6"', minute)
        matched = emission.cause == "matched"
        if matched:
            canvas.arrow(canvas.x(minute), 168, canvas.x(minute), 100, BLUE)
        canvas.dot(
            canvas.x(minute),
            175,
            clock(minute) if matched else f"{clock(minute)} unmatched",
            BLUE if matched else RED,
            above=False,
        )
    canvas.axis(225, 30, "event time")
    return canvas


def join_grace() -> Canvas:
    """A record waits in the buffer, so that the version that it should meet can come."""
    table = driver("table_history", history_retention="30d")
    patient = driver("stream_table_join", table, table="weather", join="left", grace="2h")
    hasty = driver("stream_table_join", table, table="weather", join="left", grace="0")
    canvas = Canvas("A grace of 2 h: a departure waits for the reading of its time", 330, 655, 800)
    for y, name in ((80, "readings arrive"), (150, "departures"), (215, "in the buffer")):
        canvas.lane(y, name)
    pipe(table, "JFK", '"10 mi"', 600)
    canvas.words(canvas.x(655) + 4, 72, "10 mi of 10:00 is there", GREEN, anchor="start")
    for kind, minute, of in (("record", 662, 0), ("record", 700, 0), ("version", 720, 660), ("record", 785, 0)):
        if kind == "version":
            pipe(table, "JFK", '"2 mi"', of)
            canvas.dot(canvas.x(minute), 80, f"2 mi of {clock(of)}", GREEN)
            continue
        at_once = pipe(hasty, "JFK", '"B6"', minute)[0]
        canvas.dot(canvas.x(minute), 150, clock(minute))
        if minute == 662:
            canvas.words(canvas.x(minute) - 6, 180, f"without a grace: {_met(at_once)}", RED, anchor="start")
        for emission in pipe(patient, "JFK", '"B6"', minute):
            begun = emission.timestamp / MINUTE
            canvas.bar(
                canvas.x(begun),
                canvas.x(begun + 120),
                215,
                f"the departure of {clock(begun)} waits until T = {clock(begun + 120)}",
            )
            canvas.arrow(canvas.x(begun + 120), 228, canvas.x(begun + 120), 254, GREEN)
            canvas.words(canvas.x(begun + 120), 272, f"out, with {_met(emission)}", GREEN, bold=True)
    canvas.axis(298, 20, "stream time")
    return canvas


def _met(emission: Emission) -> str:
    """The table's side of a joined value."""
    return words(emission.value).partition('"table":')[2].strip('}"')


def retention() -> Canvas:
    """Versions that no read can ask for any more have expired."""
    driven = driver("table_history", history_retention="1h")
    versions = [(600, "1.09"), (620, "1.07"), (650, "1.08"), (690, "1.10")]
    canvas = Canvas(
        "Retention: with history_retention: 1h versions are kept for reads as of T - 1 h or later", 255, 590, 710
    )
    canvas.lane(110, "versions of EUR")
    for minute, value in versions:
        pipe(driven, "EUR", value, minute)
    pipe(driven, "EUR", "1.05", 615)
    kept = {row["timestamp"] // MINUTE for row in driven.held()}
    for at, (minute, value) in enumerate(versions):
        end = canvas.x(versions[at + 1][0]) if at + 1 < len(versions) else WIDTH - RIGHT
        canvas.bar(
            canvas.x(minute),
            end,
            110,
            value if minute in kept else f"{value} expired",
            GREEN if minute in kept else GREY,
        )
    for minute, name in ((driven.stream_time / MINUTE, "T"), (driven.stream_time / MINUTE - 60, "T - retention")):
        canvas.line(canvas.x(minute), 68, canvas.x(minute), 205, INK, dashed=True)
        canvas.words(canvas.x(minute), 60, name, bold=True)
    for row in driven.late:
        x = canvas.x(row["timestamp"] / MINUTE)
        canvas.dot(x, 165, "", RED)
        canvas.words(x - 12, 170, "a write that comes now: late", RED, anchor="end")
    canvas.axis(215, 10, "event time")
    return canvas


KINDS: dict[str, dict[str, Any]] = {
    "tumbling: 30m": {"tumbling": "30m", "grace": "9h"},
    "hopping: 1h, advance: 30m": {"hopping": "1h", "advance": "30m", "grace": "9h"},
    "session: 20m": {"session": "20m", "grace": "9h"},
    "unlimited: true": {"unlimited": True},
}


def windows() -> Canvas:
    """The same records in windows of each kind."""
    records, first, last = [605, 612, 631, 652, 655, 700, 708], 590, 750
    canvas = Canvas("Counts of the same records in windows of each kind", 400, first, last, left=220)
    canvas.lane(70, "records")
    for minute in records:
        canvas.dot(canvas.x(minute), 70)
    y = 115
    for name, window in KINDS.items():
        driven = driver("windowed_aggregation", window=window, aggregate={"count": True}, emit="updates")
        told = {
            (each.window_start, each.window_end): each.value
            for minute in records
            for each in pipe(driven, "k", "1", minute)
        }
        rows = 2 if "hopping" in window else 1
        canvas.lane(y + 14 * (rows - 1), name, line=False)
        for at, ((start, end), value) in enumerate(sorted(told.items())):
            if value is not None:
                _window(canvas, (start / MINUTE, end / MINUTE), y + 28 * (at % rows), words(value))
        y += 28 * rows + 28
    canvas.axis(y, 30, "event time")
    return canvas


def _window(canvas: Canvas, bounds: tuple[float, float], y: float, count: str) -> None:
    first, last = canvas.x(590), WIDTH - RIGHT
    canvas.bar(max(canvas.x(bounds[0]), first), min(canvas.x(bounds[1]), last), y, count)


def closing() -> Canvas:
    """What each way to emit tells of one window."""
    records = [605, 640, 670, 650, 690, 655]
    options = {"window": {"tumbling": "1h", "grace": "30m"}, "aggregate": {"count": True}}
    modes = {mode: driver("windowed_aggregation", emit=mode, **options) for mode in ("updates", "on_time", "final")}
    canvas = Canvas("The window from 10:00 to 11:00 with grace: 30m, record by record", 345, 0, 6, left=170)
    for y, name in (
        (75, "record of"),
        (110, "stream time T"),
        (155, "the window"),
        (205, "emit: updates"),
        (245, "emit: on_time"),
        (285, "emit: final"),
    ):
        canvas.lane(y, name, line=y > 160)
    phases: list[str] = []
    for at, minute in enumerate(records):
        x = canvas.x(at + 0.5)
        for y, (mode, driven) in zip((205, 245, 285), modes.items(), strict=True):
            late_before = len(driven.late)
            for emission in pipe(driven, "k", "1", minute):
                if emission.window_start == 600 * MINUTE:
                    canvas.dot(x - 10, y, "", GREEN)
                    canvas.words(x + 8, y + 5, words(emission.value), GREEN, bold=True)
            late = mode == "final" and len(driven.late) > late_before
        time = driven.stream_time / MINUTE
        phases.append("open" if time < 660 else "ended, takes late records" if time < 690 else "closed")
        canvas.words(x, 80, clock(minute) + (" late" if late else ""), RED if late else BLUE, bold=True)
        canvas.words(x, 115, clock(time), INK)
    for phase, color in (("open", BLUE), ("ended, takes late records", ORANGE), ("closed", GREY)):
        begin, count = phases.index(phase), phases.count(phase)
        canvas.bar(canvas.x(begin) + 3, canvas.x(begin + count) - 3, 155, phase, color)
    canvas.words(canvas.x(3), 330, "green: a result of that window, with its count", GREEN)
    return canvas


STEPS = [
    ("plan", "offsets"),
    ("step", "state changes"),
    ("files", "Parquet"),
    ("output", "into Kafka"),
    ("commit", "to Delta"),
    ("publish", "made visible"),
]


def batch() -> Canvas:
    """One batch is one commit: a crash before it undoes everything, one after it loses nothing."""
    canvas = Canvas("One micro-batch is one Delta commit", 245, 0, 6, left=30)
    for at, (name, says) in enumerate(STEPS):
        left, right = canvas.x(at) + 8, canvas.x(at + 1) - 22
        decided = name == "commit"
        canvas.bar(left, right, 95, "", GREEN if decided else BLUE, high=58)
        canvas.words((left + right) / 2, 91, name, bold=True)
        canvas.words((left + right) / 2, 110, says, GREY)
        if at + 1 < len(STEPS):
            canvas.arrow(right + 3, 95, right + 26, 95)
    edge = canvas.x(5) - 8
    canvas.line(edge, 50, edge, 225, RED, dashed=True)
    canvas.words(edge - 12, 165, "a crash here: the transaction aborts, the batch is done again", RED, anchor="end")
    canvas.words(edge - 12, 187, "nobody has seen anything of it", RED, anchor="end")
    canvas.words(edge + 10, 165, "a crash here:", RED, anchor="start")
    canvas.words(edge + 10, 187, "published again", RED, anchor="start")
    canvas.words(edge + 10, 209, "from the log", RED, anchor="start")
    return canvas


def pipeline_time() -> Canvas:
    """A filter drops records, but their time passes on and closes the windows of the others."""
    records = [("a", 550), ("a", 560), ("b", 615), ("a", 680)]
    counting = {
        "kind": "windowed_aggregation",
        "window": {"tumbling": "1h", "grace": "10m"},
        "aggregate": {"count": True},
    }
    counts = {"name": "counts", "emit": "updates", **counting}
    steps = [{"filter": "key = 'a'"}, counts, {"name": "final", "kind": "suppression", "until": "window_close"}]
    counted = driver("pipeline", key="string", steps=steps[:2])
    driven = driver("pipeline", key="string", steps=steps)
    canvas = Canvas("The time of a dropped record passes on, and closes the window of the others", 345, 0, 4, left=190)
    for y, name in ((75, "records"), (130, "filter: key = 'a'"), (185, "counts"), (250, "final: T"), (300, "results")):
        canvas.lane(y, name)
    for at, (key, minute) in enumerate(records):
        x, passes = canvas.x(at + 0.4), key == "a"
        canvas.dot(x, 75, f"{key} {clock(minute)}")
        canvas.arrow(x, 85, x, 120, BLUE)
        canvas.dot(x, 130, "" if passes else "dropped", BLUE if passes else RED, above=False)
        for emission in pipe(counted, key, "1", minute):
            canvas.arrow(x, 140, x, 172, BLUE)
            canvas.words(x, 190, f"{words(emission.key)}: {words(emission.value)}", BLUE, bold=True)
        released = pipe(driven, key, "1", minute)
        canvas.line(x + 45, 130 if not passes else 190, x + 45, 228, ORANGE, dashed=True)
        canvas.words(x + 45, 255, clock(driven.stream_time / MINUTE), ORANGE, bold=True)
        for emission in released:
            canvas.arrow(x + 45, 262, x + 45, 285, GREEN)
            canvas.words(x + 45, 305, f"{words(emission.key)}: {words(emission.value)}", GREEN, bold=True)
    canvas.words(canvas.x(0), 335, "orange: time marks; the window from 9:00 closes at 10:10", ORANGE, anchor="start")
    return canvas


PICTURES: tuple[Callable[[], Canvas], ...] = (
    event_time,
    stream_time,
    suppression,
    buffer,
    as_of_join,
    join_grace,
    retention,
    windows,
    closing,
    batch,
    pipeline_time,
)


def drawn() -> dict[str, str]:
    """Every picture by the name of its file."""
    return {f"{picture.__name__.replace('_', '-')}.svg": picture().svg() for picture in PICTURES}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, svg in drawn().items():
        (FOLDER / name).write_text(svg)
        print(FOLDER / name)
