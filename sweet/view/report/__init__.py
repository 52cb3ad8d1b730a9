"""Draw the report of a run as one self-contained HTML page (see `sweet.view.html`), without scripts, with charts as
inline SVG. `sweet.report` computes its content.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sweet.errors import SweetError, for_command_line
from sweet.report.quote import p_value_text, rate_name, trained_on
from sweet.report.schema import Report, Sample
from sweet.runs.run import Run
from sweet.view.dialogue_view import DisplayOptions
from sweet.view.html import head, line, resource, write
from sweet.view.html_screenshots import HtmlScreenshots
from sweet.view.records import Records
from sweet.view.report import charts
from sweet.view.report.html_parts import moment, section
from sweet.view.report.provenance_sections import again, environment, lineage, quote, settings
from sweet.view.report.result_sections import advantages, rate_cell, results, success, training
from sweet.view.report.scales import minus
from sweet.view.run_screenshots import RunScreenshots
from sweet.view.transcript import trajectory

PICTURES = 12 * 2**20
"""Most characters of all pictures in a report."""


def write_report(path: Path, run: Run, report: Report, *, dialogues: bool = True) -> None:
    """Write the page to `path`, which is replaced only after the page is complete."""
    write(path, page(run, report, dialogues=dialogues))


def page(run: Run, report: Report, *, dialogues: bool = True) -> Iterator[str]:
    """Yield the page in parts."""
    title = f"{report.run} · report"
    yield head(title, resource("transcript.css", "report/report.css"), pictures=True)
    yield "<header>\n" + _masthead(report) + "</header>\n<main>\n"
    yield _problems(report.problems)
    for part in (results, training, success, advantages):
        yield part(report)
    if dialogues:
        yield section("dialogues", "Some dialogues", "".join(_samples(run, report)))
    for part in (lineage, settings, environment, again, quote):
        yield part(report)
    yield "</main>\n</body>\n</html>\n"


def _masthead(report: Report) -> str:
    facts = [
        ("task", report.task),
        ("method", report.method),
        ("began", moment(report.created)),
        ("ended", moment(report.ended) if report.ended else ""),
        ("sweet", ", ".join(report.versions)),
        ("tokens", "" if report.spent is None else report.spent.text),
    ]
    headline = report.headline
    result = report.result(headline.scores) if headline else None
    if result is not None:
        facts[1:1] = [
            ("dataset", result.dataset),
            ("agent", result.agent),
            ("simulated human", result.sim),
            ("scorer", " in ".join(filter(None, [result.scorer, result.sandbox]))),
        ]
    listed = "".join(f"<div><dt>{line(name)}</dt><dd>{line(value)}</dd></div>" for name, value in facts if value)
    return f"<h1>{line(report.run)}</h1>\n{_headline(report)}<dl>{listed}</dl>\n"


def _headline(report: Report) -> str:
    headline = report.headline
    if headline is None:
        return '<p class="headline">Nothing in this run has been scored yet.</p>\n'
    rate = headline.rate
    change = ""
    comparison = next((one for one in report.comparisons if one.after == headline.scores), None)
    if comparison is not None:
        measure = comparison.measures[0]
        bounds = minus(measure.bounds_text)
        change = (
            f'<p class="change">{minus(measure.difference_text)} <span class="ci">{bounds}</span> in '
            f"{line(rate_name(measure.name))} against before training, "
            f"{line(p_value_text(measure.p_value))}</p>\n"
        )
    result = report.result(headline.scores)
    seen = "" if result is None else trained_on(result)
    mark = "state" if result is not None and result.trained_on_tasks else "note"
    first = f'<p class="{mark}">{line(seen)}</p>\n' if seen else ""
    if result is not None and result.stale:
        change += f'<p class="state">{line(result.id)} is stale: {line(result.stale)}</p>\n'
    shown = f"<span>{line(rate_name(rate.name))}</span> {rate_cell(rate)} {charts.interval(rate)}"
    return f'{first}<p class="headline">{shown}</p>\n{change}'


def _problems(problems: list[str]) -> str:
    if not problems:
        return ""
    items = "".join(f"<li>{line(problem)}</li>" for problem in problems)
    return f'<aside class="problems"><h2>Parts of the run could not be read</h2><ul>{items}</ul></aside>\n'


def _samples(run: Run, report: Report) -> Iterator[str]:
    """Yield the chosen dialogues by rollouts artifact."""
    room = PICTURES
    for rollouts in dict.fromkeys(sample.rollouts for sample in report.samples):
        chosen = {sample.id: sample for sample in report.samples if sample.rollouts == rollouts}
        yield f"<h3>{line(rollouts)}</h3>\n"
        try:
            records = Records(run, rollouts)
            screenshots = RunScreenshots.of(run, records.rollouts, draw=True)
            pictures = None if screenshots is None else HtmlScreenshots(screenshots, room)
            yield from _dialogues(records, chosen, pictures)
            room = room if pictures is None else pictures.room
        except (SweetError, OSError) as error:
            yield f'<p class="note">Its dialogues cannot be shown: {line(for_command_line(error))}</p>\n'


def _dialogues(records: Records, chosen: dict[str, Sample], pictures: HtmlScreenshots | None) -> Iterator[str]:
    found = {summary.id: summary for summary in records.summaries() if summary.id in chosen}
    options = DisplayOptions.of(records)
    for id, sample in chosen.items():
        if id in found:
            record = records.record(found[id])
            yield trajectory(found[id], record, options, pictures=pictures, title=", ".join(sample.why))
