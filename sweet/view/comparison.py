"""A comparison of two evaluations (sweet.scoring.results.compare) in tables, for the terminal and as Markdown.

Both are made of the same sections. On a terminal a table that is too wide becomes a list, each row a block of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from sweet.scoring.results.evaluation import distinct
from sweet.scoring.results.statistics import TESTS, p_in_words
from sweet.view import safe_markdown
from sweet.view.terminal import count
from sweet.view.text import printable_line

Metrics = Mapping[str, Any]

MEASURES = {"pass_at_k": "pass@k", "best_of_k": "best of k, by reward"}
CHOSEN = "best of N by the critic"
_NAME_WIDTH = 14
_UNBOUNDED = 100_000
_RATES = 16
"""Rates of repeats that are shown."""


class Foreign(str):
    """Text from a file in a cell: an id, a path, a model's name."""


@dataclass(frozen=True)
class Section:
    """A table with what is to be said of it; drawn as it is.

    Attributes:
        rows: the first cell names the row; a line feed parts a figure from its interval.
        remarks: sentences, any text in them.
        folded: whether Markdown hides it until it is asked for.
    """

    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    remarks: tuple[str, ...] = ()
    folded: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.title, "bold")
        if self.rows:
            table = self._table()
            wide = Measurement.get(console, options.update(max_width=_UNBOUNDED), table).maximum
            yield table if wide <= options.max_width else self._list()
        for remark in self.remarks:
            yield Text(printable_line(remark), "yellow" if not self.header else "")

    def _table(self) -> Table:
        table = Table()
        for index, name in enumerate(self.header):
            own = any(isinstance(row[index], Foreign) for row in self.rows)
            table.add_column(
                Text(name),
                justify="left" if own or not index else "right",
                max_width=None if own or index else _NAME_WIDTH,
                no_wrap=own,
            )
        for row in self.rows:
            table.add_row(*[Text(_shown(cell)) for cell in row])
        return table

    def _list(self) -> Text:
        width = max(map(len, self.header[1:]), default=0)
        lines = Text()
        for name, *cells in self.rows:
            lines.append(f"{printable_line(name)}\n", "bold")
            for label, cell in zip(self.header[1:], cells, strict=True):
                lines.append(f"  {label:{width}}  ", "dim").append(_shown(cell).replace("\n", " ") + "\n")
        lines.rstrip()
        return lines

    def markdown(self) -> str:
        parts = []
        if self.rows:
            cells = [
                [safe_markdown.code(cell) if isinstance(cell, Foreign) else cell.replace("\n", " ") for cell in row]
                for row in self.rows
            ]
            parts.append(safe_markdown.table(self.header, cells))
        if self.remarks:
            parts.append("\n".join(f"- {safe_markdown.prose(remark)}" for remark in self.remarks))
        body = "\n\n".join(parts)
        if self.folded:
            return f"<details><summary>{self.title}</summary>\n\n{body}\n\n</details>"
        return f"**{self.title}**\n\n{body}"


def sections(metrics: Metrics) -> list[Section]:
    """The report, in the order in which it is read."""
    found = [_sides(metrics), *_warnings(metrics), *_figures(metrics)]
    found += [_best(metrics, name) for name in MEASURES if name in metrics]
    found += [_repeats(metrics["repeats"]), *_flips(metrics["flips"])]
    return found


def as_markdown(metrics: Metrics) -> str:
    return "\n\n".join(section.markdown() for section in sections(metrics)) + "\n"


def samples(metrics: Metrics) -> list[Section]:
    """What one evaluation says of pass@k, of best of k and of the critic's choice."""
    found = [
        Section(
            title,
            ("k", "tasks", "rate"),
            tuple((k, f"{told['tasks']:,}", interval(told, "rate")) for k, told in metrics[name].items()),
        )
        for name, title in MEASURES.items()
        if name in metrics
    ]
    return [*found, _by_critic(metrics["best_of"])] if "best_of" in metrics else found


def _by_critic(told: Metrics) -> Section:
    rows = tuple(
        (n, f"{row['tasks']:,}", *(interval(row, name) for name in ("critic", "random", "oracle")))
        for n, row in told["n"].items()
    )
    left_out = count(told["left_out"], "dialogue")
    return Section(
        f"{CHOSEN}, {told['critic']}",
        ("N", "tasks", "critic picks", "at random", "oracle"),
        rows,
        remarks=(f"Too long for the critic, and not chosen among: {left_out}.",) if told["left_out"] else (),
    )


def interval(told: Metrics, name: str, *, sign: bool = False) -> str:
    """A figure with its interval under it."""
    form = "+.3f" if sign else ".3f"
    value, low, high = told[name], told[f"{name}_ci_low"], told[f"{name}_ci_high"]
    return f"{value:{form}}\n[{low:.3f}, {high:.3f}]"


def _sides(metrics: Metrics) -> Section:
    rows = []
    for side in "ab":
        told = metrics[side]
        place = Foreign(f"{told['run']}:{told['scores']}")
        agent = "–" if told["agent"] is None else str(told["agent"]).removeprefix(f"{Path(told['run']).absolute()}/")
        rows.append((side.upper(), place, Foreign(agent), f"{told['dialogues']:,}", f"{told['tasks']:,}"))
    title = f"B against A, on the {count(metrics['tasks'], 'task')} that both have"
    return Section(title, ("", "scores", "agent", "dialogues", "tasks"), tuple(rows))


def _warnings(metrics: Metrics) -> Iterator[Section]:
    if metrics["warnings"]:
        yield Section("Not alike on both sides", remarks=tuple(warning["text"] for warning in metrics["warnings"]))


def _figures(metrics: Metrics) -> Iterator[Section]:
    told = distinct(metrics["figures"])
    yield Section(
        "Means over tasks, with 95% intervals",
        ("figure", "A", "B", "B - A", "p"),
        tuple(
            (
                _words(name),
                *(interval(row, side) for side in "ab"),
                interval(row, "difference", sign=True),
                p_in_words(row["p_value"]),
            )
            for name, row in told.items()
        ),
    )
    yield Section(
        "Task by task: B is higher (win), lower (loss), equal (tie)",
        ("figure", "win rate", "wins", "losses", "ties", "test of p"),
        tuple(
            (
                _words(name),
                interval(row, "win_rate"),
                *(f"{row[count]:,}" for count in ("wins", "losses", "ties")),
                TESTS[row["test"]],
            )
            for name, row in told.items()
        ),
    )


def _best(metrics: Metrics, name: str) -> Section:
    rows = tuple(
        (k, f"{row['tasks']:,}", interval(row, "a"), interval(row, "b"), interval(row, "difference", sign=True))
        for k, row in metrics[name].items()
    )
    return Section(MEASURES[name], ("k", "tasks", "A", "B", "B - A"), rows)


def _repeats(repeats: Metrics) -> Section:
    rows = []
    remarks = []
    single = [side.upper() for side in "ab" if repeats[side]["repeats"] < 2]
    for side in "ab":
        told, name = repeats[side], side.upper()
        if name in single:
            continue
        spread = [f"{told[key]:.3f}" if told[key] is not None else "–" for key in ("deviation", "binomial_deviation")]
        rates = [rate["rate"] for rate in told["rates"]]
        span = f"{min(rates):.3f} – {max(rates):.3f}"
        rows.append((name, f"{told['repeats']:,}", f"{told['mean']:.3f}", *spread, span))
        more = f" and {len(rates) - _RATES} more" if len(rates) > _RATES else ""
        remarks.append(f"The rates of {name}: {' '.join(f'{rate:.3f}' for rate in rates[:_RATES])}{more}.")
        if told["left_out"]:
            remarks.append(f"{name}: left out for want of too many tasks: {count(told['left_out'], 'repeat')}.")
    if single:
        remarks.append(
            f"One repeat only of {' and of '.join(single)}: how much it varies is not known. "
            "sweet rollout with --samples 4, or again with --seed 1, makes more."
        )
    title = f"Repeats: {_words(repeats['a']['figure'])} of one dialogue a task"
    return Section(title, ("", "repeats", "mean", "deviation", "binomial", "range"), tuple(rows), tuple(remarks))


def _flips(flips: Metrics) -> Iterator[Section]:
    solved = flips["by"] == "solved"
    titles = {
        "lost": "Solved by A and not by B" if solved else "Reward lower in B",
        "gained": "Solved by B and not by A" if solved else "Reward higher in B",
    }
    for key, title in titles.items():
        told = flips[key]
        if not told["count"]:
            continue
        rest = told["count"] - len(told["tasks"])
        yield Section(
            f"{title}: {count(told['count'], 'task')}",
            *_flipped(told["tasks"]),
            remarks=(f"{rest:,} more; --flips {told['count']} names all.",) if rest else (),
            folded=True,
        )


def _flipped(tasks: Sequence[Metrics]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Header and rows; one column of dialogues where those of both sides have the same names."""
    one = all(row["a_ids"][0] == row["b_ids"][0] for row in tasks)
    header = ("task", "A → B", "dialogue") if one else ("task", "A → B", "dialogue of A", "dialogue of B")
    rows = [
        (
            Foreign(row["task"]),
            f"{row['a']:.3g} → {row['b']:.3g}",
            *(Foreign(row[ids][0]) for ids in (("a_ids",) if one else ("a_ids", "b_ids"))),
        )
        for row in tasks
    ]
    return header, tuple(rows)


def _shown(cell: str) -> str:
    return printable_line(cell) if isinstance(cell, Foreign) else cell


def _words(name: str) -> str:
    return name.replace("_", " ")
