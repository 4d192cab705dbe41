"""Plots for a report, drawn as SVG text: bars and lines with axes, by us and without any script.

Colours are CSS variables of the page (`--a` to `--d`, `--line`, `--soft`), so that a plot is right
in light and in dark. Each plot has a title and a description for those who cannot see it; lines
differ by their dashes, too. All text that comes from outside is escaped.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
WIDTH: Final = 960
HEIGHT: Final = 280
_SHORT_CHARS: Final = 40
"""Texts up to here stay in one line of a table."""
_LEFT: Final = 70
_RIGHT: Final = 14
_TOP: Final = 12
_BOTTOM: Final = 44
_DASHES: Final = ("", "6 3", "2 3", "8 3 2 3")
_TEXT_PX: Final = 7.2
_STEPS_MS: Final = (
    *(1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000),
    *(1_800_000, 3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000),
)
_DAY_MS: Final = 86_400_000
_WIDE_MS: Final = (*_STEPS_MS, *(_DAY_MS * days for days in (2, 7, 14, 28, 56, 112, 224)))
_MINUTE_MS: Final = 60_000
_MS_MIN: Final = -(1 << 63)
_LABELS: Final = 8
"""About so many on an axis of time."""


@dataclass(frozen=True)
class Caption:
    """What a plot says of itself."""

    title: str
    description: str
    x_name: str
    y_name: str


class Series(NamedTuple):
    """Values by the column of a plot."""

    name: str
    values: I64
    is_area: bool = False


class Columns(NamedTuple):
    """Steps of time, joined until there are few enough to draw."""

    start_ms: I64
    step_ms: int
    values: list[I64]


def join_steps(
    start_ms: I64, step_ms: int, values: Sequence[I64], columns_max: int = 480
) -> Columns:
    """Sum steps of time into wider ones, dense from the first to the last.

    Args:
        start_ms: int64[n], ascending; steps without anything may be absent.
        step_ms: width of a step.
        values: int64[n] each.
        columns_max: at most so many come back.
    """
    if not len(start_ms):
        return Columns(start_ms, step_ms, [np.zeros(0, np.int64) for _ in values])
    span = (int(start_ms[-1]) - int(start_ms[0])) // step_ms + 1
    least_ms = step_ms * -(-span // columns_max)
    wide_ms = next(
        (each for each in _WIDE_MS if each >= least_ms and each % step_ms == 0),
        step_ms * _nice_factor(-(-span // columns_max)),
    )
    first = max(int(start_ms[0]) // wide_ms * wide_ms, _MS_MIN)
    # From the first to the last it may be more than int64 holds; uint64 does, and wraps as it must.
    ahead = start_ms.astype(np.uint64) - np.int64(first).astype(np.uint64)
    index = (ahead // np.uint64(wide_ms)).astype(np.int64)
    count = int(index[-1]) + 1
    sums = [np.bincount(index, each, count).astype(np.int64) for each in values]
    return Columns(first + wide_ms * np.arange(count, dtype=np.int64), wide_ms, sums)


def _nice_factor(least: int) -> int:
    """A factor of 1, 2, 5 times a power of ten, at least `least`."""
    power: int = 10 ** max(0, math.ceil(math.log10(max(1, least))) - 1)
    return next(power * each for each in (1, 2, 5, 10) if power * each >= least)


def bars(
    caption: Caption, labels: Sequence[str], values: I64, *, tips: Sequence[str] | None = None
) -> str:
    """Bars, counted on a logarithmic scale: one message in a million is to be seen.

    Args:
        caption: what it says.
        labels: of each bar; only some are written.
        values: int64[n].
        tips: what is shown of a bar that is pointed at.
    """
    plot = _Plot(caption, len(values))
    top = max(1, int(values.max(initial=1)))
    height = math.log10(top * 10)

    def y_of(value: float) -> float:
        return plot.y(math.log10(value * 10) / height) if value else plot.y(0)

    ticks = [10**power for power in range(math.ceil(math.log10(top)) + 1) if 10**power <= top]
    plot.grid([(tick, y_of(tick)) for tick in ticks])
    for at, value in enumerate(values.tolist()):
        if value:
            tip = tips[at] if tips else f"{labels[at]}: {value:,}"
            y = y_of(value)
            plot.add(
                f'<rect class="a" x="{plot.x(at) + 0.5:.1f}" y="{y:.1f}"'
                f' width="{max(0.6, plot.step - 1):.1f}" height="{plot.y(0) - y:.1f}">'
                f"<title>{escape(tip)}</title></rect>"
            )
    plot.x_labels([(plot.x(at) + plot.step / 2, label) for at, label in enumerate(labels)])
    return plot.text()


def lines(caption: Caption, columns: Columns, series: Sequence[Series]) -> str:
    """Lines over time, on a linear scale from 0; the first one may be an area."""
    count = len(columns.start_ms)
    plot = _Plot(caption, count)
    top = max([1, *(int(each.values.max(initial=0)) for each in series)])
    ticks = _linear_ticks(top)
    top = max(top, ticks[-1])
    plot.grid([(tick, plot.y(tick / top)) for tick in ticks])
    for ordinal, each in enumerate(series):
        points = [
            f"{x:.1f},{plot.y(value / top):.1f}"
            for at, value in enumerate(each.values.tolist())
            for x in (plot.x(at), plot.x(at + 1))
        ]
        name = "abcd"[ordinal]
        if each.is_area:
            closed = [f"{plot.x(0):.1f},{plot.y(0):.1f}", *points]
            closed.append(f"{plot.x(count):.1f},{plot.y(0):.1f}")
            plot.add(f'<polygon class="{name} area" points="{" ".join(closed)}"/>')
        dash = f' stroke-dasharray="{_DASHES[ordinal]}"' if _DASHES[ordinal] else ""
        plot.add(f'<polyline class="{name} stroke"{dash} points="{" ".join(points)}"/>')
    plot.x_labels(_time_labels(columns, plot.x))
    plot.legend([each.name for each in series])
    return plot.text()


def time_bars(caption: Caption, columns: Columns) -> str:
    """Bars over time on a linear scale; of the first values."""
    plot = _Plot(caption, len(columns.start_ms))
    values = columns.values[0]
    ticks = _linear_ticks(int(values.max(initial=1)))
    top = max(int(values.max(initial=1)), ticks[-1])
    plot.grid([(tick, plot.y(tick / top)) for tick in ticks])
    for at, value in enumerate(values.tolist()):
        if value:
            y = plot.y(value / top)
            tip = f"{instant_text(int(columns.start_ms[at]))}: {value:,}"
            plot.add(
                f'<rect class="a" x="{plot.x(at):.1f}" y="{y:.1f}"'
                f' width="{max(0.8, plot.step - 0.6):.1f}" height="{plot.y(0) - y:.1f}">'
                f"<title>{escape(tip)}</title></rect>"
            )
    plot.x_labels(_time_labels(columns, plot.x))
    return plot.text()


def instant_text(ms: int) -> str:
    """An instant in UTC: to the second, or to the minute where it has no seconds; any integer."""
    unit = "s" if ms % _MINUTE_MS else "m"
    ms = min(max(ms, _MS_MIN // 2), -_MS_MIN // 2)  # numpy overflows on its way, close to the ends
    return str(np.datetime64(ms, "ms").astype(f"datetime64[{unit}]")).replace("T", " ")


def short_count(value: int) -> str:
    """A count for an axis: 950, 1.5 k, 20 M."""
    for size, letter in ((10**9, " G"), (10**6, " M"), (10**3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return str(value)


class _Plot:
    """The frame of one plot: a place for each of n columns, and pieces of SVG."""

    def __init__(self, caption: Caption, count: int) -> None:
        self._caption = caption
        self._pieces: list[str] = []
        self.step = (WIDTH - _LEFT - _RIGHT) / max(1, count)

    def x(self, column: float) -> float:
        return _LEFT + self.step * column

    def y(self, share: float) -> float:
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    def grid(self, ticks: Sequence[tuple[int, float]]) -> None:
        end = WIDTH - _RIGHT
        for value, y in ticks:
            self.add(f'<line class="grid" x1="{_LEFT}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}"/>')
            place = f'x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end"'
            self.add(f"<text {place}>{short_count(value)}</text>")

    def x_labels(self, labels: Sequence[tuple[float, str]]) -> None:
        end = float("-inf")
        for x, label in labels:
            half = len(label) * _TEXT_PX / 2
            if x - half < max(end, 0) or x + half > WIDTH:
                continue
            y = HEIGHT - _BOTTOM
            self.add(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}"/>')
            self.add(f'<text x="{x:.1f}" y="{y + 18}" text-anchor="middle">{escape(label)}</text>')
            end = x + half + _TEXT_PX

    def legend(self, names: Sequence[str]) -> None:
        x = _LEFT + 10.0
        for ordinal, name in enumerate(names):
            dash = f' stroke-dasharray="{_DASHES[ordinal]}"' if _DASHES[ordinal] else ""
            self.add(
                f'<line class="{"abcd"[ordinal]} stroke"{dash} x1="{x:.0f}" x2="{x + 26:.0f}"'
                f' y1="{_TOP + 6}" y2="{_TOP + 6}"/>'
            )
            self.add(f'<text x="{x + 32:.0f}" y="{_TOP + 10}">{escape(name)}</text>')
            x += 48 + len(name) * _TEXT_PX

    def text(self) -> str:
        caption = self._caption
        y = HEIGHT - _BOTTOM
        frame = f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        names = (
            f'<text class="name" x="{(WIDTH + _LEFT) / 2:.0f}" y="{HEIGHT - 6}"'
            f' text-anchor="middle">{escape(caption.x_name)}</text>'
            f'<text class="name" transform="translate(14 {(HEIGHT - _BOTTOM) / 2:.0f}) rotate(-90)"'
            f' text-anchor="middle">{escape(caption.y_name)}</text>'
        )
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(caption.title)}:'
            f' {escape(caption.description)}"><title>{escape(caption.title)}</title>'
            f"<desc>{escape(caption.description)}</desc>{''.join(self._pieces)}{frame}{names}</svg>"
        )


def _linear_ticks(top: int) -> list[int]:
    """About five round values from 0 to `top` or a little over it."""
    step = _nice_factor(max(1, -(-top // 5)))
    return list(range(0, top + step, step))


def _time_labels(columns: Columns, x_of: Callable[[float], float]) -> list[tuple[float, str]]:
    """Round instants within the columns, and where they are."""
    if not len(columns.start_ms):
        return []
    first = int(columns.start_ms[0])
    end = int(columns.start_ms[-1]) + columns.step_ms
    step = next((each for each in _STEPS_MS if (end - first) / each <= _LABELS), 0)
    if not step:
        step = _DAY_MS * _nice_factor(-(-(end - first) // (_LABELS * _DAY_MS)))
    at = -(-first // step) * step
    found: list[tuple[float, str]] = []
    while at <= end:
        text = instant_text(at)
        label = text[:10] if step >= _DAY_MS else text[11:]
        if not found or (step < _DAY_MS and at % _DAY_MS == 0):
            label = text if step < _DAY_MS else label
        found.append((x_of((at - first) / columns.step_ms), label))
        at += step
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if _is_number(value):
        return f'<td class="n">{value:,}</td>'
    text = str(value)
    return f"<td{' class=t' if len(text) > _SHORT_CHARS else ''}>{escape(text)}</td>"


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    caption: str = "",
    notes: Sequence[str] = (),
) -> str:
    """An HTML table; numbers to the right, only long texts in several lines, text escaped.

    `notes`: a line under each row, over the whole width.
    """
    numbers = [_is_number(value) for value in rows[0]] if rows else [False] * len(heads)
    cells = "".join(
        f'<th scope="col"{" class=n" if is_number else ""}>{escape(head)}</th>'
        for head, is_number in zip(heads, numbers, strict=True)
    )
    lines_ = [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    if notes:
        lines_ = [
            f"{line.replace('<tr>', '<tr class=o>', 1)}"
            f'<tr class=n><td class="t" colspan="{len(heads)}">{escape(note)}</td></tr>'
            for line, note in zip(lines_, notes, strict=True)
        ]
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="wide"><table>{named}<thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(lines_)}</tbody></table></div>"
    )
