"""Render a comparison of two evaluations (sweet.scoring.results.compare) as tables, for the terminal and as Markdown.

Both formats use the same sections. On a terminal a table that is too wide becomes a list with one block per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from sweet.scoring.results.evaluation import distinct
from sweet.scoring.results.statistics import TESTS, p_equals, p_in_words
from sweet.scoring.results.trained_on import of_both_in_words
from sweet.units import count, format_duration, metric_name, price, rate_bounds, rate_value
from sweet.view import safe_markdown
from sweet.view.text import printable_line

Metrics = Mapping[str, Any]

MEASURES = {"pass_at_k": "pass@k", "pass_hat_k": "pass^k", "best_of_k": "best of k, by reward"}
CHOSEN = "best of N by the critic"
SIDES = ("a", "b")
_NAME_WIDTH = 14
_UNBOUNDED = 100_000


class UntrustedText(str):
    """Text of a cell that comes from a file: an id, a path, the name of a model."""


@dataclass(frozen=True)
class Section:
    """A titled table with remarks.

    Attributes:
        rows: the first cell is the name of the row; a line feed separates a value from its interval.
        remarks: sentences, which may contain untrusted text.
        folded: on a page and in Markdown the section is collapsed.
        notes: what a page says of a row, by the name of the row.
    """

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    remarks: Sequence[str] = ()
    folded: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)

    def of(self, title: str, *columns: int) -> Section:
        """Return the section of the names of the rows and these columns."""
        rows = [[row[0], *(row[column] for column in columns)] for row in self.rows]
        return Section(title, (self.header[0], *(self.header[column] for column in columns)), rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
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
            untrusted = any(isinstance(row[index], UntrustedText) for row in self.rows)
            table.add_column(
                Text(printable_line(name)),
                justify="left" if untrusted or not index else "right",
                max_width=None if untrusted or index else _NAME_WIDTH,
                no_wrap=untrusted,
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
                [
                    safe_markdown.code(cell) if isinstance(cell, UntrustedText) else cell.replace("\n", " ")
                    for cell in row
                ]
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
    """Return the sections of the report in reading order."""
    result = [_sides(metrics)]
    if metrics["warnings"]:
        remarks = [warning["text"] for warning in metrics["warnings"]]
        result.append(Section("Differences between both sides", remarks=remarks))
    result += _metric_sections(metrics)
    result += [_best(metrics, name) for name in MEASURES if name in metrics]
    of_humans = {"by_human": _by_human, "leaks": _leaks, "style": _style}
    result += [section(metrics[name]) for name, section in of_humans.items() if name in metrics]
    return [*result, _repeats(metrics), *_flips(metrics["flips"])]


def as_markdown(metrics: Metrics) -> str:
    parts = [trained_on(metrics), *(section.markdown() for section in sections(metrics))]
    return "\n\n".join(parts) + "\n"


def _by_human(by_human: Metrics) -> Section:
    rows = [
        (
            UntrustedText(human),
            *(text for side in SIDES for text in (f"{row[f'{side}_tasks']:,}", known_interval(row, side))),
            f"{row['tasks']:,}",
            known_interval(row, "difference", sign=True),
        )
        for human, row in by_human["humans"].items()
    ]
    header = ("human", "tasks of A", "A", "tasks of B", "B", "of both", "B - A")
    return Section(f"By human: {metric_name(by_human['figure'])}", header, rows)


def humans(metrics: Metrics) -> list[Section]:
    """Return the section of what a rollout or an evaluation has by human; none where its dialogues name no human."""
    found = metrics.get("humans") or {}
    names = [name for name in next(iter(found.values()), {}) if not name.endswith(("_ci_low", "_ci_high"))]
    rows = [
        [
            UntrustedText(human),
            *(known_interval(row, name) if f"{name}_ci_low" in row else f"{row[name]:,}" for name in names),
        ]
        for human, row in found.items()
    ]
    return [Section("By human", ("human", *map(metric_name, names)), rows)] if rows else []


def known_interval(row: Metrics, name: str, *, sign: bool = False) -> str:
    """Return a value with its interval on a second line; a dash where it is not known."""
    return "–" if row[name] is None else interval(row, name, sign=sign)


def trained_on(metrics: Metrics) -> str:
    """Say on how many of the compared tasks the agents were trained."""
    a, b = (metrics[side]["trained_on_tasks"] for side in "ab")
    return of_both_in_words(a, b, metrics["tasks"])


def samples(metrics: Metrics) -> list[Section]:
    """Return the sections of one evaluation: pass@k, pass^k, best of k, and best of N by the critic."""
    result = []
    for name, title in MEASURES.items():
        if name in metrics:
            rows = [(k, f"{row['tasks']:,}", interval(row, "rate")) for k, row in metrics[name].items()]
            result.append(Section(title, ("k", "tasks", "rate"), rows))
    return [*result, _by_judge(metrics["best_of"])] if "best_of" in metrics else result


def _by_judge(best_of: Metrics) -> Section:
    rows = [
        (n, f"{row['tasks']:,}", *(interval(row, name) for name in ("critic", "random", "oracle")))
        for n, row in best_of["n"].items()
    ]
    remarks = []
    if best_of["left_out"]:
        remarks.append(f"Too long for the critic and therefore excluded: {count(best_of['left_out'], 'dialogue')}.")
    if best_of.get("reference_context") == "dialogue":
        remarks.append("The critic's reference reads the dialogue alone, without the training-time information.")
    header = ("N", "tasks", "critic picks", "at random", "oracle")
    return Section(f"{CHOSEN}, {best_of['critic']}", header, rows, remarks)


def interval(row: Metrics, name: str, *, beside: Sequence[str] = (), sign: bool = False) -> str:
    """Return a value with its interval on a second line.

    Args:
        beside: the values of the row that are shown in the same unit.
    """
    value, low, high = row[name], row[f"{name}_ci_low"], row[f"{name}_ci_high"]
    others = [row[other] for other in beside]
    bounds = rate_bounds(value, low, high, *others, signed=sign)
    return f"{rate_value(value, low, high, *others, signed=sign)}\n{bounds}"


def _both(row: Metrics) -> list[str]:
    """Return the values of both sides and their difference, with their intervals, in one unit."""
    sides = [interval(row, side, beside=SIDES) for side in SIDES]
    return [*sides, interval(row, "difference", beside=SIDES, sign=True)]


def _sides(metrics: Metrics) -> Section:
    rows = []
    for side in "ab":
        own = metrics[side]
        scores = UntrustedText(f"{own['run']}:{own['scores']}")
        agent, split = (UntrustedText(own[key] or "–") for key in ("agent", "split"))
        rows.append((side.upper(), scores, agent, split, f"{own['dialogues']:,}", f"{own['tasks']:,}"))
    title = f"B against A, on the {count(metrics['tasks'], 'task')} that both have"
    return Section(title, ("", "scores", "agent", "split", "dialogues", "tasks"), rows)


def rounds(metrics: Metrics) -> list[Section]:
    """Return the section of the rounds of `sweet train`, as far as they are known; none where there are none."""
    found = metrics.get("rounds") or []
    rate = metric_name(str(metrics.get("metric")))
    titles = {"test": f"{rate} on test tasks", "validation": "on validation tasks", "leak_rate": "human leaked"}
    rates = {key: title for key, title in titles.items() if any(key in one for one in found)}
    if not any(one.get("leak_rate") for one in found):
        rates.pop("leak_rate", None)
    costs = {"cost": "cost", "cost_per_solved_task": "a solved test task"}
    costs = {key: title for key, title in costs.items() if any(key in one for one in found)}
    tokens = [sum(number for key, number in one["usage"].items() if key.endswith("_tokens")) for one in found]
    rows = [
        (
            str(one["round"] or "start"),
            UntrustedText(f"{one['agent']} (kept)" if one["agent"] == metrics["best"] else one["agent"]),
            *(" ".join(known_interval(one, key).split("\n")) if key in one else "–" for key in rates),
            f"{one['usage']['dialogues']:,}",
            f"{of_round:,}",
            format_duration(one["usage"]["seconds"]),
            *(price(one[key]) if key in one else "–" for key in costs),
        )
        for one, of_round in zip(found, tokens, strict=True)
    ]
    dialogues = sum(one["usage"]["dialogues"] for one in found)
    usage = f"{dialogues:,}", f"{sum(tokens):,}", format_duration(metrics.get("seconds", 0))
    paid = [price(metrics["cost"]) if key == "cost" else "" for key in costs]
    total = ("all", "", *[""] * len(rates), *usage, *paid)
    header = ("round", "agent", *rates.values(), "dialogues", "tokens", "time", *costs.values())
    return [Section("Rounds", header, [*rows, total], list(_kept(metrics)))] if rows else []


def _kept(metrics: Metrics) -> Iterator[str]:
    """Yield a sentence about the agent that `sweet train` keeps."""
    first, best, paired = metrics["rounds"][0]["agent"], metrics["best"], metrics.get("paired")
    if paired is not None:
        yield f"{best} is kept: {paired_in_words(metrics['metric'], paired, f'{best} on test tasks', first)}."
    elif best != first:
        yield f"{best} is the best so far."
    elif len(metrics["rounds"]) > 1:
        yield f"No actor is better on validation tasks than {first}, which is kept."


def paired_in_words(name: str, row: Metrics, of: str, first: str) -> str:
    """Return a metric of a result against that of the first agent, paired by task.

    Args:
        of: the agent of the result, and its tasks.
    """
    one, other, difference = _both(row)
    text = f"{metric_name(name)} {other} by {of}, {one} by {first}, paired by task {difference}"
    return " ".join(f"{text}, {p_equals(row['p_value'])}".split())


def _metric_sections(metrics: Metrics) -> Iterator[Section]:
    rows = distinct(metrics["figures"])
    means = [(metric_name(name), *_both(row), p_in_words(row["p_value"])) for name, row in rows.items()]
    yield Section("Means over tasks, with 95 % intervals", ("figure", "A", "B", "B - A", "p"), means)
    tasks = [
        (
            metric_name(name),
            interval(row, "win_rate"),
            *(f"{row[count]:,}" for count in ("wins", "losses", "ties")),
            TESTS[row["test"]],
        )
        for name, row in rows.items()
    ]
    header = ("figure", "win rate", "wins", "losses", "ties", "test of p")
    yield Section("Task by task: B is higher (win), lower (loss), equal (tie)", header, tasks)


def _best(metrics: Metrics, name: str) -> Section:
    rows = [(k, f"{row['tasks']:,}", *_both(row)) for k, row in metrics[name].items()]
    return Section(MEASURES[name], ("k", "tasks", "A", "B", "B - A"), rows)


def _style(style: Metrics) -> Section:
    """Return how the humans of both sides speak."""
    rows = [(name.replace("_", " "), *_both(row), p_in_words(row["p_value"])) for name, row in style["figures"].items()]
    remarks = []
    if style["told_apart"] is not None:
        apart = " ".join(interval(style, "told_apart").split())
        remarks.append(f"A classifier tells from a dialogue which human it was in {apart}; chance is 50 %.")
    return Section("How the humans speak, a reply", ("", "A", "B", "B - A", "p"), rows, remarks)


def _leaks(leaks: Metrics) -> Section:
    """Return how often the human leaked on both sides; a success that rises with it is no better agent."""
    rows = []
    for key in ("leak_rate", "leaked_rate", "withheld_rate"):
        row = {side + end: leaks[side][key + end] for side in SIDES for end in ("", "_ci_low", "_ci_high")}
        if key == "leak_rate":
            row |= {name: value for name, value in leaks.items() if name.startswith("difference")}
            rows.append((metric_name(key), *_both(row), p_in_words(leaks["p_value"])))
        else:
            rows.append((metric_name(key), *(interval(row, side, beside=SIDES) for side in SIDES), "–", "–"))
    tries = [f"{leaks[side]['tries_per_dialogue']:.3g}" for side in SIDES]
    rows.append(("tries per dialogue", *tries, "–", "–"))
    return Section("The human and the solution: dialogues in which it leaked", ("", "A", "B", "B - A", "p"), rows)


def _repeats(metrics: Metrics) -> Section:
    rows, repeats = [], metrics["repeats"]
    remarks = []
    single = [side.upper() for side in "ab" if repeats[side]["repeats"] < 2]
    for side in "ab":
        own, name = repeats[side], side.upper()
        if name in single:
            continue
        rates = [rate["rate"] for rate in own["rates"]]
        deviations = [
            "–" if own[key] is None else rate_value(own[key], *rates) for key in ("deviation", "binomial_deviation")
        ]
        span = f"{rate_value(min(rates), *rates)} – {rate_value(max(rates), *rates)}"
        rows.append((name, f"{own['repeats']:,}", rate_value(own["mean"], *rates), *deviations, span))
        if own["left_out"]:
            remarks.append(f"{name}: omitted because too many tasks are missing: {count(own['left_out'], 'repeat')}.")
    if single:
        remarks.append(f"Only one repeat of {' and of '.join(single)}: its variation is unknown.")
    if sampled := [name for name in single if metrics[name.lower()]["temperature"] != 0]:
        whose = " and of ".join(sampled)
        remarks.append(f"Make more of {whose} with sweet rollout --samples 4, or again with --seed 1.")
    title = f"Repeats: {metric_name(repeats['a']['figure'])} of one dialogue a task"
    return Section(title, ("", "repeats", "mean", "deviation", "binomial", "range"), rows, remarks)


def _flips(flips: Metrics) -> Iterator[Section]:
    solved = flips["by"] == "solved"
    titles = {
        "lost": "Solved by A and not by B" if solved else "Reward lower in B",
        "gained": "Solved by B and not by A" if solved else "Reward higher in B",
    }
    for key, title in titles.items():
        flipped = flips[key]
        if not flipped["count"]:
            continue
        rest = flipped["count"] - len(flipped["tasks"])
        remarks = [f"{rest:,} more; --flips {flipped['count']} lists all."] if rest else []
        header, rows = _flipped(flipped["tasks"])
        yield Section(f"{title}: {count(flipped['count'], 'task')}", header, rows, remarks, folded=True)


def _flipped(tasks: Sequence[Metrics]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return header and rows, with one column of dialogues if both sides have the same ids."""
    same = all(row["a_ids"][0] == row["b_ids"][0] for row in tasks)
    header = ("task", "A → B", "dialogue") if same else ("task", "A → B", "dialogue of A", "dialogue of B")
    rows = [
        (
            UntrustedText(row["task"]),
            f"{row['a']:.3g} → {row['b']:.3g}",
            *(UntrustedText(row[ids][0]) for ids in (("a_ids",) if same else ("a_ids", "b_ids"))),
        )
        for row in tasks
    ]
    return header, rows


def _shown(cell: str) -> str:
    return printable_line(cell) if isinstance(cell, UntrustedText) else cell
