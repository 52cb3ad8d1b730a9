"""Charts as inline SVG, readable without a script.

All charts have the same frame, a few hundred units wide, and are shown at about this size, so that their text is as
large as the page's, also on a phone; a wide page shows several side by side. The values of a mark are in its `<title>`,
and for charts with few marks in a table below. Series differ in colour and in dash; colours are classes, which the
page's style sheet defines (a policy by hashes forbids style attributes). Titles and names of series may be untrusted
text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sweet.report.schema import Bin, Point, Rate, Series, TurnAdvantage
from sweet.units import is_share, plain_bounds, rate, rate_bounds, rate_value
from sweet.view.html import line
from sweet.view.report.scales import Scale, labels, short, ticks

WIDTH, HEIGHT = 360, 220
LEFT, RIGHT, TOP, BOTTOM = 50, 10, 20, 32
SMALL_WIDTH, SMALL_HEIGHT = 150, 16
COLOURS = 4
"""The number of classes of series: s0, s1, …"""
FEW = 16
"""Most points of a curve that are drawn as dots with their values."""


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
    def up(cls, values: Iterable[float], bounds: tuple[float, float] | None = None) -> Axis:
        """Return the vertical axis: from bound to bound if all values are between, else between round numbers."""
        listed = list(values)
        if bounds is not None and min(listed) >= bounds[0] and max(listed) <= bounds[1]:
            listed = list(bounds)
        rising = ticks(min(listed), max(listed), 5)
        return cls(rising, Scale(rising[0], rising[-1], HEIGHT - BOTTOM, TOP))


def lines(title: str, x_name: str, series: Sequence[Series], *, share: bool = False, doubling: bool = False) -> str:
    """Draw curves over a number, with a band if the points have bounds.

    Args:
        share: the values are shares, and the axis goes from 0 to 1.
        doubling: the numbers are 1, 2, 4, …, with equal distances.
    """
    numbers = sorted({point.x for one in series for point in one.points})
    at = {x: float(index) for index, x in enumerate(numbers)} if doubling else {x: x for x in numbers}
    across = Axis.across(at.values())
    reach = [value for one in series for p in one.points for value in (p.y, p.low, p.high) if value is not None]
    up = Axis.up(reach, (0.0, 1.0) if share else None)
    share = share and is_share(*reach)
    parts = [_level(up, share=share)]
    if doubling:
        named = list(zip([across.scale(at[x]) for x in numbers], [short(x) for x in numbers], strict=True))
    else:
        named = list(zip(map(across.scale, across.values), labels(across.values), strict=True))
    parts += [_along(x_name, named)]
    for number, one in enumerate(series):
        parts.append(_curve(one, number, [across.scale(at[point.x]) for point in one.points], up.scale, share=share))
    legend = _legend([one.name for one in series]) if len(series) > 1 else ""
    return _figure(title, "".join(parts), legend)


def _curve(series: Series, number: int, places: Sequence[float], up: Scale, *, share: bool) -> str:
    colour = f"s{number % COLOURS}"
    bounded = [
        (x, p.low, p.high)
        for x, p in zip(places, series.points, strict=True)
        if p.low is not None and p.high is not None
    ]
    band = ""
    if len(bounded) > 1:
        above = [f"{x:.1f},{up(high):.1f}" for x, _, high in bounded]
        below = [f"{x:.1f},{up(low):.1f}" for x, low, _ in reversed(bounded)]
        band = f'<polygon class="band {colour}" points="{" ".join(above + below)}"/>'
    points = " ".join(f"{x:.1f},{up(p.y):.1f}" for x, p in zip(places, series.points, strict=True))
    title = f"<title>{line(series.name)}</title>"
    drawn = f'<polyline class="curve {colour}" points="{points}">{title}</polyline>' if len(places) > 1 else ""
    few = zip(places, series.points, strict=True) if len(places) <= FEW else ()
    dots = "".join(_dot(x, up(p.y), colour, 3, _point(series.name, p, share=share)) for x, p in few)
    return band + drawn + dots


def _dot(x: float, y: float, colour: str, radius: int, title: str) -> str:
    return f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{line(title)}</title></circle>'


def _point(name: str, point: Point, *, share: bool) -> str:
    value = short(point.y) + f" {plain_bounds(point.low, point.high, '.3f')}"
    return f"{name} at {short(point.x)}: {rate(point.y, point.low, point.high) if share else value}".rstrip()


def bins(title: str, name: str, drawn: Sequence[Bin]) -> str:
    """Draw a rate with its interval for each bin, and the sizes of the bins."""
    reach = [value for one in drawn for value in (one.rate.mean, one.rate.low, one.rate.high) if value is not None]
    up = Axis.up(reach, (0.0, 1.0))
    places = _columns(len(drawn))
    parts = [
        _level(up, share=is_share(*reach)),
        _along(name, [(x, span(one)) for x, one in zip(places, drawn, strict=True)]),
    ]
    for x, one in zip(places, drawn, strict=True):
        label = f"{span(one)} {name}: {_bounds(one.rate)}, n = {one.n:,}"
        parts.append(f"<g><title>{line(label)}</title>{_whisker(x, one.rate, up.scale)}</g>")
    parts.append(_counts([(x, one.n) for x, one in zip(places, drawn, strict=True)]))
    rows = [[span(one), f"{one.n:,}", *_cells(one.rate)] for one in drawn]
    return _figure(title, "".join(parts), numbers([name, "n", drawn[0].rate.name, "95 % interval"], rows))


def _counts(counts: Sequence[tuple[float, int]]) -> str:
    """Draw the number of dialogues above each mark."""
    name = f'<text class="y" x="{LEFT - 6}" y="{TOP - 9}">n</text>'
    return name + "".join(f'<text class="n" x="{x:.1f}" y="{TOP - 9}">{count}</text>' for x, count in counts)


def span(one: Bin) -> str:
    """Return the range of a bin: `3` · `12–17` · `0.58–0.62`."""
    if one.low == one.high:
        return short(one.low)
    for digits in (2, 3, 4):
        low, high = (short(value) if value == int(value) else f"{value:.{digits}g}" for value in (one.low, one.high))
        if low != high:
            break
    return f"{low}–{high}"


def _bounds(rate: Rate) -> str:
    return " ".join(_cells(rate)).strip()


def _cells(rate: Rate) -> list[str]:
    return [rate_value(rate.mean, rate.low, rate.high), rate_bounds(rate.mean, rate.low, rate.high)]


def _whisker(x: float, rate: Rate, up: Scale) -> str:
    bar = ""
    if rate.low is not None and rate.high is not None:
        bar = f'<line class="whisker s0" x1="{x:.1f}" x2="{x:.1f}" y1="{up(rate.low):.1f}" y2="{up(rate.high):.1f}"/>'
    return f'{bar}<circle class="s0" cx="{x:.1f}" cy="{up(rate.mean):.1f}" r="4"/>'


def quartiles(title: str, unit: str, turns: Sequence[TurnAdvantage]) -> str:
    """Draw the advantages of each turn.

    A box reaches from the first to the third quartile, with a line at the median, a dot at the mean, and a diamond at
    the mean of the replies that were given.
    """
    reach = [value for one in turns for value in (one.lower, one.upper, one.mean, one.taken) if value is not None]
    up = Axis.up([*reach, 0.0])
    places = _columns(len(turns))
    zero = up.scale(0.0)
    parts = [_level(up), _along("turn", [(x, str(one.turn)) for x, one in zip(places, turns, strict=True)])]
    parts.append(f'<line class="zero-line" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{zero:.1f}" y2="{zero:.1f}"/>')
    half = min(12.0, (WIDTH - LEFT - RIGHT) / max(len(turns), 1) * 0.3)
    for x, one in zip(places, turns, strict=True):
        top, foot, middle = (up.scale(value) for value in (one.upper, one.lower, one.median))
        label = (
            f"turn {one.turn}: mean {one.mean:+.3f}, quartiles {one.lower:+.3f}, {one.median:+.3f}, {one.upper:+.3f}"
        )
        parts.append(
            f"<g><title>{line(label)}</title>"
            f'<rect class="box s0" x="{x - half:.1f}" y="{top:.1f}" width="{2 * half:.1f}" height="{foot - top:.1f}"/>'
            f'<line class="median s0" x1="{x - half:.1f}" x2="{x + half:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"/>'
            f'<circle class="s0" cx="{x:.1f}" cy="{up.scale(one.mean):.1f}" r="3"/>'
        )
        if one.taken is not None:
            y = up.scale(one.taken)
            parts.append(f'<path class="mark s1" d="M{x:.1f} {y - 5:.1f} l4 5 -4 5 -4 -5z"/>')
        parts.append("</g>")
    parts.append(_counts([(x, one.candidates) for x, one in zip(places, turns, strict=True)]))
    key = (
        '<p class="legend"><span class="key s0">candidates: quartiles, median, mean</span> '
        '<span class="key given s1">the reply that was given</span></p>'
    )
    return _figure(f"{title}, {unit}", "".join(parts), key)


def interval(rate: Rate, low: float = 0.0, high: float = 1.0) -> str:
    """Draw a rate and its interval in small for a row of a table."""
    scale = Scale(min(low, rate.mean), max(high, rate.mean), 4, SMALL_WIDTH - 4)
    bar = ""
    if rate.low is not None and rate.high is not None:
        first, last = (scale(min(max(bound, scale.low), scale.high)) for bound in (rate.low, rate.high))
        bar = f'<line class="whisker s0" x1="{first:.1f}" x2="{last:.1f}" y1="8" y2="8"/>'
    return (
        f'<svg class="interval" viewBox="0 0 {SMALL_WIDTH} {SMALL_HEIGHT}" width="{SMALL_WIDTH}" '
        f'height="{SMALL_HEIGHT}" aria-hidden="true"><line class="grid" x1="4" x2="{SMALL_WIDTH - 4}" y1="8" y2="8"/>'
        f'{bar}<circle class="s0" cx="{scale(rate.mean):.1f}" cy="8" r="4"/></svg>'
    )


def share(part: int, whole: int) -> str:
    """Draw a share of a whole as a small bar for a row of a table."""
    length = SMALL_WIDTH * part / whole if whole else 0.0
    return (
        f'<svg class="interval" viewBox="0 0 {SMALL_WIDTH} {SMALL_HEIGHT}" width="{SMALL_WIDTH}" '
        f'height="{SMALL_HEIGHT}" aria-hidden="true"><rect class="share s0" x="0" y="3" width="{length:.1f}" '
        'height="10"/></svg>'
    )


def numbers(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the numbers of a chart as a collapsed table, whose first column has the names."""
    head = "".join(f'<th scope="col">{line(name)}</th>' for name in header)
    body = "".join("<tr>" + "".join(f"<td>{line(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<details class="numbers"><summary>numbers</summary><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></details>"
    )


def _columns(count: int) -> list[float]:
    width = (WIDTH - LEFT - RIGHT) / max(count, 1)
    return [LEFT + width * (index + 0.5) for index in range(count)]


def _level(up: Axis, *, share: bool = False) -> str:
    """Draw the horizontal grid lines with their values, those of shares in per cent."""
    named = [f"{label} %" for label in labels([100 * value for value in up.values])] if share else labels(up.values)
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up.scale(value):.1f}" y2="{up.scale(value):.1f}"/>'
        f'<text class="y" x="{LEFT - 6}" y="{up.scale(value) + 4:.1f}">{shown}</text>'
        for value, shown in zip(up.values, named, strict=True)
    )


def _along(name: str, named: Sequence[tuple[float, str]]) -> str:
    """Draw the labels of the horizontal axis after its name, alternating on two lines if they do not fit on one."""
    room = (WIDTH - LEFT - RIGHT) / max(len(named), 1)
    crowded = max((len(shown) for _, shown in named), default=0) * 6.5 > room
    depths = (14, 26 if crowded else 14)
    return (
        "".join(
            f'<text class="x" x="{x:.1f}" y="{HEIGHT - BOTTOM + depths[index % 2]}">{line(shown)}</text>'
            for index, (x, shown) in enumerate(named)
        )
        + f'<text class="y" x="{LEFT - 6}" y="{HEIGHT - BOTTOM + depths[1]}">{line(name)}</text>'
    )


def _legend(names: Sequence[str]) -> str:
    keys = " ".join(f'<span class="key s{n % COLOURS}">{line(name)}</span>' for n, name in enumerate(names))
    return f'<p class="legend">{keys}</p>'


def _figure(title: str, drawn: str, under: str = "") -> str:
    """Return the figure. `drawn` and `under` are HTML already."""
    return (
        f'<figure class="chart"><figcaption>{line(title)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{line(title)}">{drawn}</svg>{under}</figure>\n'
    )
