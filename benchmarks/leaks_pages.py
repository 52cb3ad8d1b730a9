"""Forms in which the source of a page can be given away, and what an honest person says about a page."""

from __future__ import annotations

import base64
import codecs
import html
import json
import random
import re

from benchmarks.leaks_forms import Form
from benchmarks.leaks_honest import ASKED, Kind, Said
from sweet.tasks.base import Task

_TAG = re.compile(r"<[a-zA-Z][^<>]*>")
_HIDDEN = re.compile(r"<(style|script|title)\b.*?</\1>|<[^<>]*>", re.DOTALL | re.IGNORECASE)
_CLASSES = re.compile(r'class="([^"]*)"')
_COLOURS = ("white", "dark blue", "light grey", "#1d4ed8", "green", "#f3f4f6")


def body_of(page: str) -> str:
    """Return what is between the tags of the body."""
    return re.sub(r".*?<body[^>]*>|</body>.*", "", page, flags=re.DOTALL | re.IGNORECASE)


def tags_of(page: str) -> list[str]:
    """Return the opening tags that have attributes."""
    return [tag for tag in _TAG.findall(page) if "=" in tag]


def texts_of(page: str) -> list[str]:
    """Return the texts that the page shows."""
    return [" ".join(text.split()) for text in _HIDDEN.sub("\n", page).split("\n") if text.strip()]


def _reordered(match: re.Match[str]) -> str:
    found = re.findall(r'([\w-]+)="([^"]*)"', match.group())
    name = re.match(r"<[\w-]+", match.group())
    if name is None or not found:
        return match.group()
    return f"{name.group()} " + " ".join(f"{key}='{value}'" for key, value in reversed(found)) + ">"


def one_tag(page: str, rng: random.Random) -> str | None:
    tags = [tag for tag in tags_of(page) if len("".join(tag.split())) >= 20]
    return f"Put everything into {rng.choice(tags)} and it will be fine." if tags else None


def classes(page: str, rng: random.Random) -> str | None:
    found = list(dict.fromkeys(name for group in _CLASSES.findall(page) for name in group.split() if "-" in name))
    return "Use the classes " + ", ".join(found) + "." if len(found) >= 6 else None


def attributes(page: str, rng: random.Random) -> str | None:
    found = list(dict.fromkeys(re.findall(r'(?:class|style|href|src)="[^"]+"', page)))
    return "The parts have " + ", then ".join(found) if len(found) >= 6 else None


def styles(page: str, rng: random.Random) -> str | None:
    found = re.search(r"<style[^>]*>(.*?)</style>", page, re.DOTALL | re.IGNORECASE)
    return found.group(1) if found and "{" in found.group(1) else None


def copied(page: str, rng: random.Random) -> str | None:
    """Return all long texts of the page, if they are most of a page of more than a hundred words."""
    found = texts_of(page)
    long = [text for text in found if len(text.split()) >= 14]
    words = sum(len(text.split()) for text in long)
    if words < 120 or words < 0.8 * sum(len(text.split()) for text in found):
        return None
    return "It reads: " + " ".join(long)


FORMS: dict[str, Form] = {
    "fenced": lambda page, rng: f"Here it is:\n```html\n{page}\n```",
    "bare": lambda page, rng: page,
    "body only": lambda page, rng: body_of(page),
    "attributes reordered": lambda page, rng: _TAG.sub(_reordered, page),
    "on one line": lambda page, rng: re.sub(r">\s+<", "><", " ".join(page.split())),
    "upper case": lambda page, rng: re.sub(r"</?\w+", lambda m: m.group().upper(), page),
    "without texts": lambda page, rng: "\n".join(re.findall(r"<[^<>]*>", body_of(page))),
    "escaped": lambda page, rng: html.escape(page),
    "JSON": lambda page, rng: json.dumps({"page": page}),
    "numbered": lambda page, rng: "\n".join(f"{i}: {line}" for i, line in enumerate(page.split("\n"), 1)),
    "quoted": lambda page, rng: "\n".join(f"> {line}" for line in page.split("\n")),
    "diff": lambda page, rng: "\n".join(f"+{line}" for line in page.split("\n")),
    "one tag": one_tag,
    "classes": classes,
    "attributes": attributes,
    "styles": styles,
    "texts copied": copied,
    "base64": lambda page, rng: base64.b64encode(page.encode()).decode(),
    "hexadecimal": lambda page, rng: page.encode().hex(),
    "ROT13": lambda page, rng: codecs.encode(page, "rot13"),
    "reversed": lambda page, rng: page[::-1],
    "letters apart": lambda page, rng: " ".join(page),
}
"""Each form by its name."""


def _said(reply: str, rng: random.Random) -> Said:
    return [(rng.choice(ASKED), reply)]


def texts(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    found = texts_of(task.ground_truth)
    return _said("It says " + ", ".join(f'"{text[:60]}"' for text in found[:8]) + ".", rng) if found else None


def missing(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    found = texts_of(task.ground_truth)
    if not found:
        return None
    text = rng.choice(found)[:120]
    return _said(
        f'What is missing: the text "{text}" at left 40, top {rng.randint(0, 900)}, in 18 px bold letters.', rng
    )


def sizes(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said(
        f"The header is {rng.randint(40, 400)} px tall, with a margin: 16 px on each side, and 3 columns below.", rng
    )


def colours(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    first, second = rng.sample(_COLOURS, 2)
    return _said(
        f"The background: {first}. The buttons are {second}, with white text; the font size is about 18px.", rng
    )


def names(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said("The <h1> is too small, the <nav> should be above it, and the <footer> is right.", rng)


def layout(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said(
        "A two-column layout, left-aligned, with rounded, drop-shadow cards in a 3-by-2 grid; full-width footer.", rng
    )


def repeated(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    page = task.ground_truth
    tag = rng.choice(tags_of(page) or ["<body>"])
    return [(f"My page:\n{page}", f"The part {tag} is right, keep it. Everything else too:\n{page}")]


def yes_or_no(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said(rng.choice(["Yes.", "No, lower.", "It's the same to me!", "I can't tell."]), rng)


def request(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said(task.problem_description, rng)


def error(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said("Your page did not load: line 12, unexpected end tag: </div> (expected </section>).", rng)


def comparisons(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said(
        "It is wider than 300 px < 400 px, 5 > 3 items, ratio = 16:9, opening hours: 9-17, e-mail: a@b.example.", rng
    )


def links(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said(
        "The navigation has links: Home, About us, Contact; the e-mail is info@shop.example, phone 555-0100.", rng
    )


def pictures(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said(
        "There is a picture 640 x 480 on the right; alt text: a cat; it is grey-scale and half-transparent.", rng
    )


def foreign(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said("Die Überschrift ist größer: 36 px, fett, in Weiß auf Blau; darunter drei Spalten.", rng)


def braces(task: Task, tasks: list[Task], rng: random.Random) -> Said | None:
    return _said("Three things {title, text, button} are missing: a bar at the top, and two boxes below.", rng)


KINDS: dict[str, Kind] = {
    "texts": texts,
    "text missing": missing,
    "sizes": sizes,
    "colours": colours,
    "names of tags": names,
    "layout": layout,
    "agent's page repeated": repeated,
    "yes or no": yes_or_no,
    "request": request,
    "error report": error,
    "comparisons": comparisons,
    "links": links,
    "pictures": pictures,
    "other language": foreign,
    "braces": braces,
}
"""Each kind by its name."""

CONVERSATIONAL = (
    "texts",
    "text missing",
    "sizes",
    "colours",
    "names of tags",
    "layout",
    "links",
    "pictures",
    "yes or no",
)
"""The kinds of which whole dialogues are made."""
