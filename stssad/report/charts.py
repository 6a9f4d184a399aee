"""Small charts as inline SVG, coloured by the page's style sheet: light, dark and on paper."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 240
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 34


@dataclass(frozen=True)
class Line:
    """One curve; `number` picks its colour, `bold` the chosen one."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    number: int
    bold: bool = False


@dataclass(frozen=True)
class Axis:
    """From values to positions along an axis of the chart, linear or logarithmic."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    @staticmethod
    def over(values: Sequence[float], begin: float, end: float, log: bool = False) -> "Axis":
        """An axis that holds all the finite values, with a small margin."""
        finite = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
        low, high = min(finite), max(finite)
        if log:
            return Axis(low / 1.15, high * 1.15, begin, end, True)
        margin = (high - low) * 0.05 or abs(high) * 0.1 or 1.0
        return Axis(low - margin, high + margin, begin, end)

    def position(self, value: float) -> float:
        f: Callable[[float], float] = math.log if self.log else float
        value = max(value, self.low) if self.log else value
        share = (f(value) - f(self.low)) / (f(self.high) - f(self.low))
        return round(self.begin + share * (self.end - self.begin), 1)

    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high)


def linear_ticks(low: float, high: float, about: int = 5) -> list[float]:
    step = 10 ** math.floor(math.log10((high - low) / about))
    step = next(step * k for k in (1, 2, 5, 10) if (high - low) / (step * k) <= about)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5)):
        ticks = [k * 10.0**d for d in decades for k in steps if low <= k * 10.0**d <= high]
        if len(ticks) >= 3:
            return ticks
    return ticks or [low, high]


def format_number(value: float) -> str:
    return f"{value:.0f}" if 1000 <= abs(value) < 1e5 else f"{value:.3g}"


def text(name: str, content: str, anchor: str = "middle", **attributes: object) -> str:
    """A text element of that class."""
    values = " ".join(f'{key}="{value}"' for key, value in attributes.items())
    return f'<text class="{name}" {values} text-anchor="{anchor}">{escape(content)}</text>'


def draw_frame(x: Axis, y: Axis, x_label: str, y_label: str, body: str, name: str) -> str:
    """Grid, ticks and labels around the body."""
    bottom = HEIGHT - BOTTOM
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(name)}">']
    for tick in y.ticks():
        at = y.position(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(text("tick", format_number(tick), x=LEFT - 5, y=at + 3.5, anchor="end"))
    for tick in x.ticks():
        at = x.position(tick)
        parts.append(text("tick", format_number(tick), x=at, y=bottom + 14))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    )
    parts.append(text("label", x_label, x=middle, y=HEIGHT - 4))
    parts.append(text("label", y_label, transform=f"translate(12 {bottom / 2}) rotate(-90)"))
    return "".join([*parts, body, "</svg>"])


def draw_lines(lines: Sequence[Line], y_label: str, log: bool = False) -> str:
    """Curves over iterations."""
    x = Axis.over([v for s in lines for v in s.xs], LEFT, WIDTH - RIGHT)
    y = Axis.over([v for s in lines for v in s.ys], HEIGHT - BOTTOM, TOP, log)
    body = ""
    for line in sorted(lines, key=lambda s: s.bold):
        points = " ".join(
            f"{x.position(a)},{y.position(b)}" for a, b in zip(line.xs, line.ys, strict=True)
        )
        style = "curve bold" if line.bold else "curve"
        body += (
            f'<polyline class="{style} c{line.number}" points="{points}">'
            f"<title>{escape(line.label)}</title></polyline>"
        )
    return draw_frame(x, y, "iteration", y_label, body, f"{y_label} over the iterations")


def draw_scatter(
    points: Sequence[Sequence[float]], sources: Sequence[int], names: Sequence[str]
) -> str:
    """Points in the plane, coloured by source; the axes mean nothing and are left out."""
    x = Axis.over([p[0] for p in points], 8, WIDTH - 8)
    y = Axis.over([p[1] for p in points], HEIGHT + 40, 8)
    dots = "".join(
        f'<circle class="dot k{source}" cx="{x.position(p[0])}" cy="{y.position(p[1])}" r="3.2">'
        f"<title>{names[source]}</title></circle>"
        for p, source in zip(points, sources, strict=True)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 48}" role="img" aria-label="embeddings in the plane">'
        f"{dots}</svg>"
    )
