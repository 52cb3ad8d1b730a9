"""Draw the plots of a study as PNG files with matplotlib, which is imported by the first plot.

The colours are those of Okabe and Ito, which colour-blind people can distinguish; no meaning depends on a colour alone:
curves have different marks and dashes, bars are grouped under a title. A plot is as wide as a README and its text as
large as the page's. The plots depend on the results alone, not on the user's matplotlibrc.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sweet.errors import UsageError
from sweet.installation import install_command
from sweet.report.schema import Point, Rate, Series
from sweet.study.results import MethodResult, StudyResults
from sweet.units import count, percent
from sweet.view.study import study_series
from sweet.view.study.display_names import SWEET
from sweet.view.text import printable_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 200
INSTALL = install_command("plots")

BLUE, SKY, ORANGE, VERMILION, GREEN, GREY, INK = (
    "#0072B2",
    "#56B4E9",
    "#E69F00",
    "#D55E00",
    "#009E73",
    "#8a949d",
    "#1c2126",
)
BARS = (GREY, SKY, VERMILION, ORANGE, GREEN)
"""By group of methods; the bar of `sweet` is blue."""
MARKS = (
    ("o", "-", BLUE),
    ("s", "--", VERMILION),
    ("^", "-.", GREEN),
    ("D", ":", INK),
    ("v", "-", ORANGE),
    ("P", "--", SKY),
    ("X", "-.", GREY),
    ("*", "-", VERMILION),
    ("<", "--", GREEN),
    (">", ":", BLUE),
    ("h", "-.", ORANGE),
)
"""Mark, dash and colour of each series; no two have the same mark."""
ASIDE, ABOVE = 0.1, 0.32
"""Distances of marks at the same position: doublings on a logarithmic axis, rows of a list."""
IN_A_ROW = 3
"""Most names of a legend in one row."""
CURVES = (6.0, 3.6)
"""Width and height of a plot of curves, in inches."""
LONGEST = 28
"""Most characters of a name."""

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dfe3e7",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
}

ASIDE_FONT: dict[str, Any] = {"fontsize": 8.5, "style": "italic"}
PATCH = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
"""The background of text that is drawn over grid lines."""

Draw = Callable[["Axes", StudyResults], None]


def available() -> bool:
    return find_spec("matplotlib") is not None


def check_plots() -> None:
    """Raise UsageError if matplotlib is not installed."""
    if not available():
        raise UsageError("Plots require matplotlib, which is not installed.", where="matplotlib", fix=INSTALL)


def plots(results: StudyResults) -> dict[str, bytes]:
    """Return a PNG file for each part of the results, by the name of the part.

    Raises:
        UsageError: matplotlib is not installed.
    """
    rows = len(results.methods) + len(study_series.groups(results))
    sizes = {"success": (6.8, 0.9 + 0.26 * rows), "credit": (6.4, 3.6)}
    return {
        name: _png(*sizes.get(name, CURVES), lambda figure, draw=draw: draw(figure.add_subplot(), results))  # type: ignore[misc]
        for name, draw in _parts(results).items()
    }


def overview_parts(results: StudyResults) -> list[str]:
    """Return the names of the parts on the picture of README, in their order.

    Beside the methods and the credit it is the first that there is of: learning curves, best of N over turns, and best
    of N dialogues. Older results do not have all of them.
    """
    parts = _parts(results)
    best = [name for name in ("learning", "best-of-turns", "best-of") if name in parts][:1]
    return [name for name in ("success", *best, "credit") if name in parts]


def overview(results: StudyResults, digest: str) -> bytes:
    """Return the picture of README: the first of `overview_parts` on the left, the others on the right.

    Args:
        digest: the digest of its source, stored in the file as the text `Source`.

    Raises:
        UsageError: matplotlib is not installed.
    """

    def draw(figure: Figure) -> None:
        parts = _parts(results)
        first, *others = overview_parts(results)
        grid = figure.add_gridspec(1, 2, width_ratios=[1.12, 1])
        left = figure.add_subfigure(grid[0] if others else grid[:])
        parts[first](left.add_subplot(), results)
        right = figure.add_subfigure(grid[1]) if others else figure
        for row, name in enumerate(others, 1):
            parts[name](right.add_subplot(len(others), 1, row), results)

    return _png(8.8, 5.4, draw, {"Source": digest})


def _parts(results: StudyResults) -> dict[str, Draw]:
    found: dict[str, tuple[bool, Draw]] = {
        "success": (bool(results.methods), _success),
        "best-of-turns": (bool(study_series.best_of_turns(results)), _best_of_turns),
        "best-of": (bool(study_series.best_of(results)), _best_of),
        "offline": (bool(study_series.offline(results)), _offline),
        "learning": (bool(study_series.learning(results)), _learning),
        "credit": (bool(study_series.credit(results)), _credit),
    }
    return {name: draw for name, (exists, draw) in found.items() if exists}


def _png(width: float, height: float, draw: Callable[[Figure], None], metadata: dict[str, str] | None = None) -> bytes:
    """Return the PNG of a figure, whose size is in inches."""
    check_plots()
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", STYLE]):
        figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
        draw(figure)
        file = io.BytesIO()
        figure.savefig(file, format="png", metadata={"Software": None, **(metadata or {})})
    return file.getvalue()


def _success(axes: Axes, results: StudyResults) -> None:
    """Draw a bar for each method with its interval, and a mark for greedy decoding."""
    row = 0
    names: dict[int, str] = {}
    beside = axes.get_yaxis_transform()
    axes.text(1.03, row, "mean", va="center_baseline", transform=beside, **ASIDE_FONT)
    for number, (title, methods) in enumerate(study_series.groups(results).items()):
        axes.text(0.01, row, title, va="center_baseline", transform=beside, bbox=PATCH, **ASIDE_FONT)
        row += 1
        for one in methods:
            _bar(axes, row, one, BLUE if one.method == SWEET else BARS[number % len(BARS)])
            names[row] = one.method
            row += 1
    axes.set_yticks(list(names), [_label(name) for name in names.values()])
    for text, name in zip(axes.get_yticklabels(), names.values(), strict=True):
        text.set_fontweight("bold" if name == SWEET else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(row - 0.4, -0.6)
    most = max(max(one.success, one.greedy_success, *(one.success_ci or ())) for one in results.methods)
    axes.set_xlim(0, min(1.0, math.ceil(10 * most + 0.1) / 10))
    _percent(axes.xaxis)
    axes.grid(axis="x")
    axes.set_title(f"Success on {count(results.test_tasks, 'unseen task')}")
    bar = axes.patches[0]
    greedy = axes.scatter([], [], marker="D", s=22, facecolor="white", edgecolor=INK)
    whisker = axes.errorbar([], [], xerr=[], fmt="none", ecolor=INK, elinewidth=1.2)
    axes.legend(
        [bar, whisker, greedy],
        ["temperature 1", "95 % over seeds", "greedy"],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.07),
        ncols=3,
        handlelength=1.4,
        columnspacing=1.2,
    )


def _bar(axes: Axes, row: int, one: MethodResult, colour: str) -> None:
    axes.barh(row, one.success, height=0.68, color=colour)
    reach = _reach(study_series.rate("", one.success, one.success_ci))
    axes.errorbar(one.success, row, xerr=reach, fmt="none", ecolor=INK, elinewidth=1.2)
    axes.scatter(one.greedy_success, row, marker="D", s=22, facecolor="white", edgecolor=INK, linewidth=1, zorder=3)
    axes.text(1.03, row, percent(one.success), va="center_baseline", fontsize=8.5, transform=axes.get_yaxis_transform())


def _best_of_turns(axes: Axes, results: StudyResults) -> None:
    axes.set_title("Best of N replies at each turn")
    axes.set_xlabel("N")
    _curves(axes, study_series.best_of_turns(results))


def _best_of(axes: Axes, results: StudyResults) -> None:
    axes.set_title("Best of N finished dialogues")
    axes.set_xlabel("N")
    _curves(axes, study_series.best_of(results))


def _offline(axes: Axes, results: StudyResults) -> None:
    axes.set_title("Success by offline dialogues")
    axes.set_xlabel("dialogues to learn from")
    _curves(axes, study_series.offline(results))


def _learning(axes: Axes, results: StudyResults) -> None:
    """Draw shares over a linear axis, which begins at nothing."""
    axes.set_title("Success on validation tasks")
    axes.set_xlabel("tokens that the agent generated")
    for number, one in enumerate(study_series.learning(results)):
        _curve(axes, number, one, [point.x for point in one.points])
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens:,.0f}")
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlim(left=0)
    _percent(axes.yaxis)
    axes.grid(axis="y")
    _legend(axes)


def _curves(axes: Axes, series: Sequence[Series]) -> None:
    """Draw shares over a logarithmic axis."""
    axes.set_xscale("log", base=2)
    for number, one in enumerate(series):
        aside = 2 ** (ASIDE * _aside(number, len(series)))
        _curve(axes, number, one, [point.x * aside for point in one.points])
    numbers = sorted({point.x for one in series for point in one.points})
    axes.set_xticks(numbers, [f"{number:,.0f}" for number in numbers])
    axes.minorticks_off()
    _percent(axes.yaxis)
    axes.grid(axis="y")
    _legend(axes)


def _curve(axes: Axes, number: int, one: Series, at: Sequence[float]) -> None:
    """Draw a series with its intervals.

    Args:
        number: of the series in its plot.
        at: positions of the points.
    """
    mark, dash, colour = MARKS[number % len(MARKS)]
    axes.errorbar(
        at,
        [point.y for point in one.points],
        yerr=[[_reach(point)[side][0] for point in one.points] for side in (0, 1)],
        fmt=mark,
        linestyle=dash,
        color=colour,
        elinewidth=1,
        label=_label(one.name),
    )


def _credit(axes: Axes, results: StudyResults) -> None:
    judges = study_series.credit(results)
    kinds = list(dict.fromkeys(found.name for rates in judges.values() for found in rates))
    axes.axvline(0, color=INK, linewidth=0.8)
    for number, (judge, rates) in enumerate(judges.items()):
        mark, _, colour = MARKS[number % len(MARKS)]
        aside = ABOVE * _aside(number, len(judges))
        axes.errorbar(
            [found.mean for found in rates],
            [kinds.index(found.name) + aside for found in rates],
            xerr=[[_reach(found)[side][0] for found in rates] for side in (0, 1)],
            fmt=mark,
            color=colour,
            elinewidth=1.2,
            label=_label(judge),
        )
    axes.set_yticks(range(len(kinds)), [_label(kind) for kind in kinds])
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_title("Mean advantage by kind of turn")
    axes.set_xlabel("nats a token")
    _legend(axes)


def _legend(axes: Axes) -> None:
    """Draw the legend between the title and the axes, where it cannot overlap a curve."""
    many = len(axes.get_legend_handles_labels()[1])
    rows = math.ceil(many / IN_A_ROW)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.06, 0.98),
        ncols=math.ceil(many / rows),
        columnspacing=0.8,
        labelspacing=0.3,
        handlelength=2.0,
        handletextpad=0.5,
    )
    axes.set_title(axes.get_title("left"), pad=6 + 13 * rows)


def _reach(found: Rate | Point) -> tuple[list[float], list[float]]:
    """Return the distances of the interval's bounds from the mean; zero without an interval."""
    mean = found.mean if isinstance(found, Rate) else found.y
    low, high = (mean if bound is None else bound for bound in (found.low, found.high))
    return [max(mean - low, 0.0)], [max(high - mean, 0.0)]


def _aside(number: int, many: int) -> float:
    """Return evenly spaced offsets from -½ to ½."""
    return number / (many - 1) - 0.5 if many > 1 else 0.0


def _percent(axis: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))


def _label(name: str) -> str:
    """Return any text with characters that the font has."""
    shown = printable_line(name).encode("ascii", "replace").decode()
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 3]}..."
