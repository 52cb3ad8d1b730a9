"""Charts as SVG, readable without a script.

All charts have the same frame, a few hundred units wide, and are shown at about this size, so that their text is as
large as the page's, also on a phone; a wide page shows several side by side. The values of a mark are in its `<title>`.
Series differ in colour and in dash; both are classes, which the page's style sheet defines (a policy by hashes forbids
style attributes). Titles and names of series may be untrusted text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sweet.results.facts import Point, Rate, Series
from sweet.results.pages import line
from sweet.results.scales import Scale, labels, short, ticks
from sweet.units import is_share, plain_bounds, rate

WIDTH, HEIGHT = 360, 220
LEFT, RIGHT, TOP, BOTTOM = 50, 10, 20, 32
SMALL_WIDTH, SMALL_HEIGHT = 150, 16
TALL = 340
"""The height of a chart with many curves."""
MOST_LOW = 4
"""Most curves of a chart that is not tall."""
NAMES, VALUES, ROW = 124, 46, 19
"""The widths of the names and of the values, and the height of a row, in a chart with a row for each name."""
KEY_HEIGHT = 15
COLOURS, DASHES = 8, 5
"""The numbers of classes of series: s0, s1, … and d0, d1, …"""
MARKS = (
    "m-3 0 a3 3 0 1 0 6 0 a3 3 0 1 0 -6 0z",
    "m-3 -3 h6v6h-6z",
    "m0 -4 l4 7h-8z",
    "m0 -4.5 l4 4.5 -4 4.5 -4 -4.5z",
    "m0 4 l4 -7h-8z",
)
"""The marks of points, by series: circle, square, triangle, diamond, triangle."""
FEW = 16
"""Most points of a curve that are drawn as dots with their values."""


@dataclass(frozen=True)
class Drawing:
    """A chart; `content` is SVG."""

    title: str
    width: float
    height: float
    content: str

    def __html__(self) -> str:
        """Return the figure of a page."""
        name = line(self.title)
        return (
            f'<figure class="chart"><figcaption>{name}</figcaption>'
            f'<svg viewBox="0 0 {self.width:.0f} {self.height:.0f}" role="img" aria-label="{name}">{self.content}</svg>'
            "</figure>\n"
        )


@dataclass(frozen=True)
class Axis:
    """An axis: round values and the scale that maps them to positions."""

    values: list[float]
    scale: Scale

    @classmethod
    def across(cls, values: Iterable[float]) -> Axis:
        """Return the horizontal axis from the least to the greatest value, with round numbers between."""
        listed = list(values)
        low, high = min(listed), max(listed)
        if low == high:
            low, high = low - 0.5, high + 0.5
        inside = [tick for tick in ticks(low, high) if low <= tick <= high]
        return cls(inside, Scale(low, high, LEFT + 4, WIDTH - RIGHT - 4))

    @classmethod
    def up(cls, values: Iterable[float], bounds: tuple[float, float] | None = None, height: float = HEIGHT) -> Axis:
        """Return the vertical axis: from bound to bound if all values are between, else between round numbers."""
        listed = list(values)
        if bounds is not None and min(listed) >= bounds[0] and max(listed) <= bounds[1]:
            listed = list(bounds)
        rising = ticks(min(listed), max(listed), 5)
        return cls(rising, Scale(rising[0], rising[-1], height - BOTTOM, TOP))

    def named(self, *, share: bool) -> list[tuple[float, str]]:
        """Return the positions of the values and their labels, those of shares in per cent."""
        shown = labels([100 * value for value in self.values]) if share else labels(self.values)
        return [
            (self.scale(at), f"{label} %" if share else label) for at, label in zip(self.values, shown, strict=True)
        ]


def lines(
    title: str,
    x_name: str,
    series: Sequence[Series],
    *,
    share: bool = False,
    doubling: bool = False,
) -> Drawing:
    """Draw curves over a number, with their intervals if the points have bounds.

    Args:
        share: the values are shares, and the axis goes from 0 to 1, with many curves to the largest value only.
        doubling: the numbers are 1, 2, 4, …, with equal distances.
    """
    tall = len(series) > MOST_LOW
    height = TALL if tall else HEIGHT
    numbers = sorted({point.x for one in series for point in one.points})
    at = {x: float(index) for index, x in enumerate(numbers)} if doubling else {x: x for x in numbers}
    across = Axis.across(at.values())
    reach = [value for one in series for p in one.points for value in (p.y, p.low, p.high) if value is not None]
    bounds = (0.0, max(reach) if tall else 1.0) if share else None
    up = Axis.up(reach, bounds, height)
    share = share and is_share(*reach)
    parts = [_level(up.named(share=share))]
    if doubling:
        named = list(zip([across.scale(at[x]) for x in numbers], [short(x) for x in numbers], strict=True))
    else:
        named = across.named(share=False)
    parts.append(_along(x_name, named, height))
    for number, one in enumerate(series):
        places = [across.scale(at[point.x]) for point in one.points]
        parts.append(_curve(one, number, places, up.scale, share=share))
    drawn = '<line class="curve {}" x1="0" x2="18" y1="0" y2="0"/>'.format
    keys = [(drawn(_classes(number)) + _mark(9, 0, number), one.name) for number, one in enumerate(series)]
    return _with_legend(title, parts, keys if len(series) > 1 else [], height)


def _classes(number: int) -> str:
    return f"s{number % COLOURS} d{number % DASHES}"


def _curve(series: Series, number: int, places: Sequence[float], up: Scale, *, share: bool) -> str:
    classes = _classes(number)
    intervals = "".join(
        _upright(x, up(p.low), up(p.high), f"thin {classes}")
        for x, p in zip(places, series.points, strict=True)
        if p.low is not None and p.high is not None
    )
    points = " ".join(f"{x:.1f},{up(p.y):.1f}" for x, p in zip(places, series.points, strict=True))
    title = f"<title>{line(series.name)}</title>"
    drawn = f'<polyline class="curve {classes}" points="{points}">{title}</polyline>' if len(places) > 1 else ""
    few = zip(places, series.points, strict=True) if len(places) <= FEW else ()
    marks = "".join(_mark(x, up(p.y), number, _point(series.name, p, share=share)) for x, p in few)
    return intervals + drawn + marks


def _mark(x: float, y: float, number: int, title: str = "") -> str:
    """Draw the mark of a point of a series."""
    named = f"<title>{line(title)}</title>" if title else ""
    shape = f"M{x:.1f} {y:.1f} {MARKS[number % len(MARKS)]}"
    return f'<path class="mark {_classes(number)}" d="{shape}">{named}</path>'


def _point(name: str, point: Point, *, share: bool) -> str:
    value = short(point.y) + f" {plain_bounds(point.low, point.high, '.3f')}"
    return f"{name} at {short(point.x)}: {rate(point.y, point.low, point.high) if share else value}".rstrip()


def _upright(x: float, low: float, high: float, classes: str) -> str:
    return f'<line class="{classes}" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'


def rows(
    title: str,
    groups: Mapping[str, Sequence[str]],
    series: Mapping[str, Mapping[str, Rate]],
    *,
    share: bool = False,
    strong: str = "",
) -> Drawing:
    """Draw a row for each name, with the rate that each series has for it as a mark with its interval.

    Args:
        groups: the names by their title, which is empty for one group.
        series: rates by name; shares of the first are written too.
        strong: the name that is emphasised.
    """
    found = [rate for rates in series.values() for rate in rates.values()]
    reach = [value for one in found for value in (one.mean, one.low, one.high) if value is not None]
    rising = ticks(min([*reach, 0.0]), max([*reach, 0.0]), 5)
    axis = Axis(rising, Scale(rising[0], rising[-1], NAMES + 10, WIDTH - VALUES - 10))
    parts, y = [], 4.0
    places: dict[str, float] = {}
    for group, names in groups.items():
        if group:
            parts.append(f'<text class="group" x="0" y="{y + ROW - 6:.0f}">{line(group)}</text>')
            y += ROW
        for name in names:
            kind = "name strong" if name == strong else "name"
            parts.append(f'<text class="{kind}" x="{NAMES}" y="{y + ROW - 6:.0f}">{line(name)}</text>')
            places[name] = y + ROW / 2
            y += ROW
    for at, label in axis.named(share=share and is_share(*reach)):
        parts.append(_upright(at, 4, y + 2, "grid"))
        parts.append(f'<text class="x" x="{at:.1f}" y="{y + 16:.0f}">{label}</text>')
    if rising[0] < 0:
        parts.append(_upright(axis.scale(0.0), 4, y + 2, "zero-line"))
    for name, one in next(iter(series.values()), {}).items():
        if name in places and share:
            parts.append(f'<text class="y" x="{WIDTH}" y="{places[name] + 4:.0f}">{one.value_text}</text>')
    for number, (kind, rates) in enumerate(series.items()):
        aside = 0.0 if len(series) < 2 else 5 * (number / (len(series) - 1) - 0.5)
        parts += [
            _row_mark(kind, one, places[name] + aside, axis.scale, number)
            for name, one in rates.items()
            if name in places
        ]
    keys = [(_mark(8, 0, number), kind) for number, kind in enumerate(series)]
    return _with_legend(title, parts, keys, y + 22)


def _row_mark(kind: str, one: Rate, y: float, scale: Scale, number: int) -> str:
    bar = ""
    if one.low is not None and one.high is not None:
        ends = f'x1="{scale(one.low):.1f}" x2="{scale(one.high):.1f}"'
        bar = f'<line class="whisker s{number % COLOURS}" {ends} y1="{y:.1f}" y2="{y:.1f}"/>'
    return bar + _mark(scale(one.mean), y, number, f"{one.name}, {kind}: {one.text}")


def interval(rate: Rate, low: float = 0.0) -> Markup:
    """Draw a rate and its interval in small for a row of a table, on a scale from `low` to 1 or to the rate."""
    scale = Scale(min(low, rate.mean), max(1.0, rate.mean), 4, SMALL_WIDTH - 4)
    bar = ""
    if rate.low is not None and rate.high is not None:
        first, last = (scale(min(max(bound, scale.low), scale.high)) for bound in (rate.low, rate.high))
        bar = f'<line class="whisker s0" x1="{first:.1f}" x2="{last:.1f}" y1="8" y2="8"/>'
    grid = f'<line class="grid" x1="4" x2="{SMALL_WIDTH - 4}" y1="8" y2="8"/>'
    return Markup(
        f'<svg class="interval" viewBox="0 0 {SMALL_WIDTH} {SMALL_HEIGHT}" width="{SMALL_WIDTH}" '
        f'height="{SMALL_HEIGHT}" aria-hidden="true">'
        f'{grid}{bar}<circle class="s0" cx="{scale(rate.mean):.1f}" cy="8" r="4"/></svg>'
    )


def _level(named: Sequence[tuple[float, str]]) -> str:
    """Draw the horizontal grid lines with their labels."""
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="y" x="{LEFT - 6}" y="{y + 4:.1f}">{shown}</text>'
        for y, shown in named
    )


def _along(name: str, named: Sequence[tuple[float, str]], height: float = HEIGHT) -> str:
    """Draw the labels of the horizontal axis after its name, alternating on two lines if they do not fit on one."""
    room = (WIDTH - LEFT - RIGHT) / max(len(named), 1)
    crowded = max((len(shown) for _, shown in named), default=0) * 6.5 > room
    depths = (14, 26 if crowded else 14)
    return (
        "".join(
            f'<text class="x" x="{x:.1f}" y="{height - BOTTOM + depths[index % 2]}">{line(shown)}</text>'
            for index, (x, shown) in enumerate(named)
        )
        + f'<text class="y" x="{LEFT - 6}" y="{height - BOTTOM + depths[1]}">{line(name)}</text>'
    )


def _with_legend(title: str, parts: Sequence[str], keys: Sequence[tuple[str, str]], height: float = HEIGHT) -> Drawing:
    """Return the chart with its keys below it, in as many lines as they need."""
    x, y, drawn = 0.0, height + 6, []
    for mark, name in keys:
        needed = 24 + 6.2 * len(name) + 14
        if x and x + needed > WIDTH:
            x, y = 0.0, y + KEY_HEIGHT
        drawn.append(f'<g transform="translate({x:.0f} {y:.0f})">{mark}<text x="24" y="4">{line(name)}</text></g>')
        x += needed
    return Drawing(title, WIDTH, y + 8 if keys else height, "".join([*parts, *drawn]))
