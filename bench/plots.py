"""Growth as a picture: a small SVG with two axes, a line for each engine, and their names beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 120, 40, 50
COLOURS = ("#0b6e99", "#c4512d", "#4f7d3a", "#7a4f9a", "#8a6d00")
_STYLE = "font-family: sans-serif; font-size: 12px"


class Axis:
    """Values to pixels, by magnitude or evenly."""

    def __init__(self, values: Sequence[float], log: bool, first: float, last: float) -> None:
        known = [value for value in values if value > 0 or not log]
        self.log = log
        low, high = (min(known), max(known)) if known else (1.0, 10.0)
        if log:
            self._low, self._high = math.floor(math.log10(low)), math.ceil(math.log10(high))
        else:
            self._low, self._high = 0.0, high
        if self._low == self._high:
            self._high += 1
        self._first, self._last = first, last

    def at(self, value: float) -> float:
        where = math.log10(value) if self.log else value
        return self._first + (where - self._low) / (self._high - self._low) * (self._last - self._first)

    def ticks(self) -> list[float]:
        if self.log:
            return [10.0**power for power in range(int(self._low), int(self._high) + 1)]
        step = 10 ** math.floor(math.log10(self._high)) / 2
        step *= 2 if self._high / step > 10 else 1
        return [step * number for number in range(int(self._high / step) + 1)]


def svg(plot: Mapping[str, Any]) -> str:
    """`plot` as bench.harness.Plot, as the results have it."""
    lines = {
        name: [(x, y) for x, y in points if (x > 0 or not plot["log_x"]) and (y > 0 or not plot["log_y"])]
        for name, points in plot["lines"].items()
    }
    every = [point for points in lines.values() for point in points]
    across = Axis([x for x, _ in every], plot["log_x"], LEFT, WIDTH - RIGHT)
    up = Axis([y for _, y in every], plot["log_y"], HEIGHT - BOTTOM, TOP)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" style="{_STYLE}" role="img">',
        f"<title>{escape(plot['title'])}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-weight="bold">{escape(plot["title"])}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(plot["x"])}</text>',
        f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(plot['y'])}</text>",
    ]
    for value in across.ticks():
        x = across.at(value)
        drawn.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        drawn.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_short(value)}</text>')
    for value in up.ticks():
        y = up.at(value)
        drawn.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        drawn.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>')
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        where = [(across.at(x), up.at(y)) for x, y in points]
        if where:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
            drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in where]
            place = f'x="{WIDTH - RIGHT + 12}" y="{TOP + 16 + 18 * number}"'
            drawn.append(f'<text {place} fill="{colour}">{escape(name)}</text>')
    return "\n".join([*drawn, "</svg>", ""])


def _short(value: float) -> str:
    for size, name in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{name}"
    return f"{value:g}"
