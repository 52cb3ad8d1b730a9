"""Names of options and calls of stages, as errors and hints show them."""

from __future__ import annotations

import shlex
from itertools import pairwise, takewhile
from pathlib import Path


def option_key(field: str) -> str:
    """Return the option of a configuration's field, without dashes: `num-tasks` for `num_tasks`, `from` for `from_`."""
    return field.rstrip("_").replace("_", "-")


def option(field: str, value: object = None) -> str:
    """Return the flag of an option of a stage, with a value, quoted where a shell needs it, or alone.

    Args:
        field: the field of the stage's configuration, such as `fail_on_error` or `from_`.
        value: its value, or a placeholder in capitals such as MODEL; several values to choose from as a tuple.
            True is a flag without a value, False the opposite one (`--no-verify`).
    """
    key = option_key(field)
    if value is None or isinstance(value, bool):
        return f"--no-{key}" if value is False else f"--{key}"
    choices = value if isinstance(value, tuple) else (value,)
    return f"--{key} {'|'.join(map(_written, choices))}"


def words_of_option(field: str, value: object) -> list[str]:
    """Return the words of a command line that give an option of a stage this value, or each of a list."""
    if isinstance(value, bool):
        return [option(field, value)]
    values = value if isinstance(value, list | tuple) else [value]
    return [word for item in values for word in (option(field), str(item))]


def stage(name: str, run: str | Path | None = None, **options: object) -> str:
    """Return the command of a stage.

    Args:
        name: the stage, such as `train-critic`.
        run: the run's directory, where it is known.
        options: the options to call it with, by their fields.
    """
    words = ["sweet", name, *([] if run is None else [str(run)])]
    for field, value in options.items():
        words += shlex.split(option(field, value))
    return shlex.join(words)


def changed(name: str, before: object, now: object) -> str:
    """Return the sentence of a setting that has another value: `--samples was 2 and is 4`."""
    was, is_ = ("not set" if value is None else repr(value) for value in (before, now))
    return f"{name} was {was} and is {is_}"


_PROGRAMS = ("sweet", "apt", "hf", "mkdir", "pip", "playwright")
"""The programs that hints call."""
_BARE = {"data": 4, "compare": 3}
"""Most words of a call of `sweet` that are neither options nor their values, its name among them; of others 2."""


def words_of(hint: str | None) -> list[str] | None:
    """Return the words of a hint that is one command and can be called as it stands; None for any other text, such as
    a choice between two commands, and for a command with a placeholder (MODEL)."""
    try:
        words = shlex.split(hint or "")
    except ValueError:  # an apostrophe of a sentence
        return None
    own = list(takewhile(lambda word: word != "--", words))
    bare = [word for before, word in pairwise(own) if not (word.startswith("--") or before.startswith("--"))]
    is_text = any(word.endswith((",", ";", "…")) or (word.isalpha() and word.isupper()) for word in words)
    if len(words) < 2 or words[0] not in _PROGRAMS or is_text:
        return None
    return words if words[0] != "sweet" or len(bare) <= _BARE.get(words[1], 2) else None


def _written(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else shlex.quote(str(value))
