"""Write HTML pages and Markdown texts from the templates in `templates/`.

Every value that a template prints is made safe, without the template saying so: an HTML template shows control and
format characters as visible marks and escapes markup; a Markdown template escapes what Markdown would interpret. A
`Markup` is printed as it is: charts, and what another template has written. Templates never mark anything themselves.

A page is one self-contained file that loads nothing from the network. Its Content-Security-Policy allows its inline
style sheet and script by their hashes, embedded pictures if it has any, and nothing else, so that markup which escaped
from a model's text could neither run nor load anything.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from sweet import units
from sweet.errors import UsageError
from sweet.files import replacing
from sweet.json_value import JsonValue
from sweet.results.facts import ScoresFact
from sweet.results.scales import minus
from sweet.scoring.results.metrics import ComparedMetric
from sweet.scoring.results.statistics import TESTS, p_equals, p_in_words
from sweet.scoring.results.trained_on import in_words
from sweet.view import safe_markdown
from sweet.view.text import printable, printable_line

MAX_LENGTH = 400
"""Most characters of a setting or an error that are shown."""
DASH = "–"
"""What stands for an unknown value."""


def line(content: object) -> Markup:
    """Escape anything as HTML on one line; also safe in a double-quoted attribute."""
    return Markup(content) if hasattr(content, "__html__") else escape(printable_line(str(content)))


def text(content: str) -> Markup:
    """Escape any text as HTML; line breaks are kept."""
    return escape(printable(content))


def shortened(value: JsonValue) -> str:
    """Return a setting as text, truncated for a table."""
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= MAX_LENGTH else f"{shown[:MAX_LENGTH]}… ({len(shown):,} characters)"


def code(content: str) -> str:
    """Return any text as a code span of Markdown, also for tables; a dash for an empty text."""
    shown = printable_line(content)
    return safe_markdown.code(shortened(shown)) if shown.strip() else DASH


def _known(format: Callable[[float], str]) -> Callable[[float | None], str]:
    """Return a format that writes a dash for an unknown value."""
    return lambda value: DASH if value is None else format(value)


def change(figure: ComparedMetric) -> str:
    return units.rate_value(figure.difference.value, figure.a.value, figure.b.value, signed=True)


def change_bounds(figure: ComparedMetric) -> str:
    found = figure.difference
    return units.rate_bounds(found.value, found.ci_low, found.ci_high, figure.a.value, figure.b.value, signed=True)


def trained_on(result: ScoresFact) -> str:
    """Say on how many of the tasks of an evaluation its agent was trained."""
    return in_words(result.trained_on_tasks, result.tasks or 0)


FORMATS: dict[str, Callable[..., str]] = {
    "minus": minus,
    "rate": lambda rate: rate.text,
    "before": lambda figure: units.rate_value(figure.a.value, figure.b.value, figure.difference.value),
    "after": lambda figure: units.rate_value(figure.b.value, figure.a.value, figure.difference.value),
    "change": change,
    "change_bounds": change_bounds,
    "trained_on": trained_on,
    "number": _known(lambda value: f"{value:,.0f}"),
    "moment": units.format_moment,
    "duration": _known(units.format_duration),
    "percent": units.percent,
    "bytes": units.format_bytes,
    "price": units.price,
    "count": units.count,
    "p_value": p_in_words,
    "p_equals": p_equals,
    "test": TESTS.__getitem__,
    "metric": units.format_metric,
}
"""Filters whose results are text of this program: numbers with their units."""


@cache
def _html() -> Environment:
    environment = _environment(finalize=line)
    environment.filters |= FORMATS | {"text": text, "shortened": shortened, "metric_name": units.metric_name}
    return environment


@cache
def _markdown() -> Environment:
    def finalize(value: object) -> Markup:
        return value if isinstance(value, Markup) else Markup(safe_markdown.prose(str(value)))

    def trusted(format: Callable[..., str]) -> Callable[..., Markup]:
        return lambda *arguments, **options: Markup(format(*arguments, **options))

    environment = _environment(finalize=finalize)
    environment.filters |= {name: trusted(format) for name, format in {**FORMATS, "code": code}.items()}
    environment.filters["metric_name"] = units.metric_name
    return environment


@cache
def _plain() -> Environment:
    environment = _environment(finalize=lambda value: Markup(value))
    environment.filters |= FORMATS | {"metric_name": units.metric_name, "code": str}
    return environment


def _environment(**options: Any) -> Environment:
    return Environment(
        loader=PackageLoader("sweet.results"),
        undefined=StrictUndefined,
        autoescape=True,  # what `finalize` has returned is Markup, and so is what macros return
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )


def fragment(name: str, /, **values: Any) -> Markup:
    """Return what a template writes, as a part of another one."""
    return Markup(_html().get_template(name).render(values))


def markdown(name: str, /, **values: Any) -> str:
    """Return the text that a Markdown template writes."""
    return _markdown().get_template(name).render(values).rstrip() + "\n"


def plain(name: str, /, **values: Any) -> str:
    """Return the plain text that a template writes, in which nothing is escaped."""
    return _plain().get_template(name).render(values).strip()


def page(
    name: str, /, *, styles: tuple[str, ...], script: str = "", pictures: bool = False, **values: Any
) -> Iterator[str]:
    """Yield a page in parts.

    Args:
        name: of its template, which extends `page.html.j2`.
        styles: its style sheets.
        script: its only script; empty without one.
        pictures: whether it has embedded pictures.
        values: for the template.
    """
    style, code = resource(*styles), resource(script) if script else ""
    scripts = f"script-src '{_hash(code)}'; " if code else ""
    images = "img-src data:; " if pictures else ""
    policy = f"default-src 'none'; style-src '{_hash(style)}'; {scripts}{images}base-uri 'none'; form-action 'none'"
    yield from _html().get_template(name).generate(values | {"style": style, "script": code, "policy": policy})


def write(path: Path, parts: Iterator[str]) -> None:
    """Write a page to `path`, which is replaced only after the page is complete.

    Raises:
        UsageError: the file cannot be written because of its permissions.
    """
    try:
        with replacing(path) as file:
            for part in parts:
                file.write(part.encode())
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise UsageError(
            f"The page cannot be written: {error.strerror}.", where=path, fix="name a file elsewhere"
        ) from error


def resource(*names: str) -> Markup:
    """Return style sheets or scripts of the templates."""
    folder = files("sweet.results").joinpath("templates")
    return Markup("".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names))


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
