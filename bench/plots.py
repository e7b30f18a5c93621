"""Line plots as small SVG files: two axes, a line for each series, and a legend."""

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
    """Maps values to pixels, on a logarithmic or linear scale."""

    def __init__(self, values: Sequence[float], log: bool, first: float, last: float) -> None:
        usable = [value for value in values if value > 0 or not log]
        self.log = log
        low, high = (min(usable), max(usable)) if usable else (1.0, 10.0)
        if log:
            self._low, self._high = math.floor(math.log10(low)), math.ceil(math.log10(high))
        else:
            self._low, self._high = 0.0, high
        if self._low == self._high:
            self._high += 1
        self._first, self._last = first, last

    def at(self, value: float) -> float:
        position = math.log10(value) if self.log else value
        return self._first + (position - self._low) / (self._high - self._low) * (self._last - self._first)

    def ticks(self) -> list[float]:
        if self.log:
            return [10.0**power for power in range(int(self._low), int(self._high) + 1)]
        step = 10 ** math.floor(math.log10(self._high)) / 2
        step *= 2 if self._high / step > 10 else 1
        return [step * number for number in range(int(self._high / step) + 1)]


def svg(plot: Mapping[str, Any]) -> str:
    """`plot` is a bench.harness.Plot as a dictionary, as in the results."""
    lines = {
        name: [(x, y) for x, y in points if (x > 0 or not plot["log_x"]) and (y > 0 or not plot["log_y"])]
        for name, points in plot["lines"].items()
    }
    all_points = [point for points in lines.values() for point in points]
    x_axis = Axis([x for x, _ in all_points], plot["log_x"], LEFT, WIDTH - RIGHT)
    y_axis = Axis([y for _, y in all_points], plot["log_y"], HEIGHT - BOTTOM, TOP)
    elements = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" style="{_STYLE}" role="img">',
        f"<title>{escape(plot['title'])}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-weight="bold">{escape(plot["title"])}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(plot["x"])}</text>',
        f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(plot['y'])}</text>",
    ]
    for value in x_axis.ticks():
        x = x_axis.at(value)
        elements.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        elements.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_short(value)}</text>')
    for value in y_axis.ticks():
        y = y_axis.at(value)
        elements.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        elements.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>')
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        positions = [(x_axis.at(x), y_axis.at(y)) for x, y in points]
        if positions:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in positions)
            elements.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            elements += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in positions]
            legend = f'x="{WIDTH - RIGHT + 12}" y="{TOP + 16 + 18 * number}"'
            elements.append(f'<text {legend} fill="{colour}">{escape(name)}</text>')
    return "\n".join([*elements, "</svg>", ""])


def _short(value: float) -> str:
    for size, name in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{name}"
    return f"{value:g}"
