"""The sections of the report about results: evaluations, trainings, success by length, advantages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sweet.report.quote import rate_name
from sweet.report.schema import (
    AdvantagesFact,
    ComparisonFact,
    DialoguesFact,
    Measure,
    OnlineFact,
    Point,
    Rate,
    Report,
    ScoresFact,
    Series,
    TrainingFact,
)
from sweet.scoring.results.statistics import TESTS, p_in_words
from sweet.units import count, format_duration, format_metric, percent, price, rate_bounds, rate_value
from sweet.view.comparison import CHOSEN, MEASURES
from sweet.view.html import line
from sweet.view.report import charts
from sweet.view.report.html_parts import charts as side_by_side
from sweet.view.report.html_parts import folded, note, section, table
from sweet.view.report.scales import minus

TRAINED = (
    ("loss", ("loss",), False),
    ("accuracy", ("accuracy", "heldout_accuracy"), True),
    ("margin of chosen over rejected", ("margin",), False),
    ("learning rate", ("lr",), False),
    ("gradient norm", ("grad_norm",), False),
    ("tokens a second", ("tokens_per_second",), False),
    ("dialogues: the human leaked, at a limit; groups of equal rewards", ("leak_rate", "limits", "equal_groups"), True),
    ("entropy at the first and at later turns, nats a token", ("entropy_first", "entropy_late"), False),
    ("divergence from the start, nats a token", ("kl_start",), False),
    ("tokens that were clipped and masked", ("clipped", "masked"), True),
    ("versions that turns were behind", ("behind",), False),
    ("tokens of a reply", ("reply_tokens",), False),
)
"""Charts of a training: title, metrics, whether they are shares."""
SHOWN_METRICS = ("epochs", "batch", "examples", "heldout", "parameters", "loss", "accuracy", "heldout_accuracy")
CURVES = {
    **{name: (title, "k") for name, title in MEASURES.items()},
    "best_of": (CHOSEN, "N"),
}
"""Title and name of the number of each curve."""


def rate_cell(rate: Rate) -> str:
    """Return a rate with its interval as HTML."""
    mean, bounds = rate_value(rate.mean, rate.low, rate.high), rate_bounds(rate.mean, rate.low, rate.high)
    return f'<b>{minus(mean)}</b> <span class="ci">{minus(bounds)}</span>'


def results(report: Report) -> str:
    content = "".join(_evaluation(result) for result in report.results)
    content = f'<div class="wide"><table class="rates">{content}</table></div>\n' if content else ""
    content += "".join(map(_by_human, report.results))
    content += "".join(_comparison(found, report) for found in report.comparisons)
    content += side_by_side(_curves(report))
    content += _outcomes(report)
    return section("results", "Results", content)


def _evaluation(result: ScoresFact) -> str:
    """Return one evaluation: a line that describes it, and its rates."""
    state = "unfinished" if result.status == "partial" else f"stale: {result.stale}" if result.stale else ""
    facts = [result.agent, result.dataset, result.scorer and f"scored by {result.scorer}"]
    if result.trajectories is not None:
        facts.append(count(result.trajectories, "dialogue"))
    if result.tasks is not None:
        facts.append(count(result.tasks, "task"))
    if result.trained_on_tasks:
        facts.append(f"{result.trained_on_tasks:,} of them trained on")
    if result.faults:
        facts.append(count(result.faults, "fault"))
    if result.invalid_tasks:
        facts.append(count(result.invalid_tasks, "invalid task"))
    if result.cost_per_solved_task is not None:
        facts.append(f"a solved task cost {price(result.cost_per_solved_task)}")
    about = f'<b>{line(result.id)}</b> <span class="note">{line(" · ".join(filter(None, facts)))}</span>'
    mark = f' <span class="state">{line(state)}</span>' if state else ""
    rates = [(rate_name(rate.name), rate) for rate in result.rates]
    if result.win_rate is not None:
        rates.append((f"win rate against {result.against}", result.win_rate))
    rows = "".join(
        f"<tr><td>{line(name)}</td><td>{rate_cell(rate)}</td><td>{charts.interval(rate)}</td></tr>\n"
        for name, rate in rates
    )
    return f'<tbody><tr><th colspan="3" scope="rowgroup">{about}{mark}</th></tr>\n{rows}</tbody>'


def _by_human(result: ScoresFact) -> str:
    """Return the rates of an evaluation by human; empty where its dialogues do not name theirs."""
    names = list(dict.fromkeys(rate.name for human in result.humans for rate in human.rates))
    rows = []
    for human in result.humans:
        cells = {rate.name: rate_cell(rate) for rate in human.rates}
        counts = ["–" if n is None else f"{n:,}" for n in (human.dialogues, human.tasks, human.faults)]
        rows.append([line(human.human), *counts, *(cells.get(name, "–") for name in names)])
    header = ["human", "dialogues", "tasks", "faults", *map(rate_name, names)]
    drawn = table(header, rows, "lrrr" + "l" * len(names))
    return f"<h3>By human: {line(result.id)}</h3>\n{drawn}" if drawn else ""


def _comparison(found: ComparisonFact, report: Report) -> str:
    before, after = (report.result(id) for id in (found.before, found.after))
    names = [one.agent or one.id for one in (before, after) if one is not None]
    rows = [_measure(measure) for measure in found.measures]
    header = ["", "before", "after", "paired difference", "p", "test", "wins", "ties", "losses"]
    warning = (
        note(f"Differences between before (A) and after (B). {' '.join(found.warnings)}") if found.warnings else ""
    )
    title = (
        f"<h3>Before and after training: {line(' and '.join(names))} on the same {count(found.tasks, 'task')}</h3>\n"
    )
    return title + table(header, rows, "lrrrrlrrr") + warning


def _measure(measure: Measure) -> list[str]:
    difference = minus(measure.difference_text)
    bounds = minus(measure.bounds_text)
    return [
        line(rate_name(measure.name)),
        measure.before_text,
        measure.after_text,
        f'<b>{difference}</b> <span class="ci">{bounds}</span>',
        line(p_in_words(measure.p_value)),
        line(TESTS[measure.test]),
        f"{measure.wins:,}",
        f"{measure.ties:,}",
        f"{measure.losses:,}",
    ]


def _curves(report: Report) -> Iterator[str]:
    for result in report.results:
        for curve in result.curves:
            title, name = CURVES[curve.name]
            named = [Series(name=rate_name(one.name), points=one.points) for one in curve.series]
            for start in range(0, len(named), charts.COLOURS):
                drawn = named[start : start + charts.COLOURS]
                yield charts.lines(f"{title}, {result.id}", name, drawn, share=True, doubling=True)


def _outcomes(report: Report) -> str:
    """Return the scores of answers as shares, and the endings of dialogues."""
    parts = []
    for found in report.dialogues:
        whole = sum(found.outcomes.values())
        rows = [
            [line(name), f"{number:,}", percent(number / whole), charts.share(number, whole)]
            for name, number in found.outcomes.items()
            if whole
        ]
        answers = table(["", "", "", ""], rows, "lrrl") or note("not scored")
        ended = note(f"dialogues: {_listed(found.ends)}") if found.ends else ""
        faults = note(f"the human's faults: {_listed(found.human_faults)}") if found.human_faults else ""
        parts.append(f"<div><h4>{line(_description(found))}</h4>{answers}{ended}{faults}</div>\n")
    content = side_by_side(parts)
    return f"<h3>How answers scored and dialogues ended</h3>\n{content}" if content else ""


def _listed(counts: Mapping[str, int]) -> str:
    return " · ".join(f"{name} {number:,}" for name, number in counts.items())


def training(report: Report) -> str:
    return section("training", "Training", "".join(_training(found) for found in report.training))


def _online(found: OnlineFact) -> str:
    """Return the summary of an online training, and its learning curve over generated tokens."""
    facts = [
        found.algorithm,
        f"{count(found.tokens, 'token')} generated",
        count(found.dialogues, "dialogue"),
        f"ended by {found.ended}" if found.ended else "unfinished",
        f"the actor has the weights of step {found.kept_step:,}" if found.kept_step is not None else "",
    ]
    named = ("play", "train", "update", "validation")
    spent = [f"{name} {format_duration(getattr(found, f'{name}_seconds'))}" for name in named]
    time = [f"{format_duration(found.seconds)} in all: {', '.join(spent)}"]
    if found.staleness:
        behind = "" if found.behind is None else f", turns {found.behind:.2f} versions behind on average"
        time.append(f"dialogues up to {count(found.staleness, 'step')} ahead{behind}")
    summary = note(" · ".join(filter(None, facts))) + note(" · ".join(time))
    if found.collapse:
        summary += f'<p class="state">Collapse: {line(found.collapse)}</p>\n'
    series = {name: Series(name=rate_name(name), points=points) for name, points in found.curve.items()}
    shares = ("success", "validation") if "success" in series else ()  # without it validation is the mean reward
    drawn = []
    for title, share in (("mean reward", False), ("solved tasks", True)):
        shown = [one for name, one in series.items() if (name in shares) == share]
        if shown:
            drawn.append(charts.lines(f"{title} over generated tokens", "tokens", shown, share=share))
    return summary + side_by_side(drawn)


def _training(found: TrainingFact) -> str:
    facts = [count(found.steps, "step")] if found.steps else []
    facts += [
        f"{rate_name(name)} {format_metric(name, found.metrics[name])}"
        for name in SHOWN_METRICS
        if name in found.metrics
    ]
    summary = note(" · ".join(facts)) if facts else ""
    if found.online is not None:
        summary += _online(found.online)
    if found.together > 1:
        summary += note(f"Each point is the mean of {count(found.together, 'step')}.")
    drawn = []
    for title, names, share in TRAINED:
        series = [Series(name=rate_name(name), points=found.series[name]) for name in names if name in found.series]
        if series:
            drawn.append(charts.lines(title, "step", series, share=share))
    curves = side_by_side(drawn) or note("There is no log of its steps.")
    return f"<h3>{line(found.artifact)}</h3>\n{summary}{curves}"


def success(report: Report) -> str:
    """Return success by turns, tokens and seconds; only the headline's dialogues are not collapsed."""
    about = report.headline.scores if report.headline else None
    shown = [
        (found, side_by_side(charts.bins(f"{found.measure} by {one.by}", one.by, one.bins) for one in found.by))
        for found in report.dialogues
    ]
    content = ""
    for found, drawn in sorted(shown, key=lambda one: one[0].scores != about):
        if drawn:
            content += (
                folded(_description(found), drawn) if content else f"<h3>{line(_description(found))}</h3>\n{drawn}"
            )
    return section("success", "Success against turns, tokens and seconds", content)


def _description(found: DialoguesFact) -> str:
    return " · ".join(filter(None, [found.rollouts, found.agent, found.dataset, count(found.count, "dialogue")]))


def advantages(report: Report) -> str:
    content = "".join(_advantages(found) for found in report.advantages if found.turns)
    return section("advantage", "Advantage along the dialogue", content)


def _advantages(found: AdvantagesFact) -> str:
    turns = found.turns
    spread = [Series(name="spread", points=[Point(x=one.turn, y=one.spread) for one in turns])]
    rows = [
        [
            str(one.turn),
            f"{one.ranked:,}",
            f"{one.candidates:,}",
            *(minus(f"{value:+.3f}") for value in (one.mean, one.lower, one.median, one.upper)),
            "–" if one.taken is None else minus(f"{one.taken:+.3f}"),
            f"{one.spread:.3f}",
        ]
        for one in turns
    ]
    header = [
        "turn",
        "dialogues",
        "candidates",
        "mean",
        "lower quartile",
        "median",
        "upper quartile",
        "given",
        "spread",
    ]
    drawn = [
        charts.quartiles("advantage of the candidates", found.unit, turns),
        charts.lines(f"spread: best minus worst candidate, {found.unit}", "turn", spread),
    ]
    return f"<h3>{line(found.candidates)}</h3>\n{side_by_side(drawn)}" + folded(
        "numbers", table(header, rows, "rrrrrrrrr")
    )
