"""The vocabulary of the generated families: the functions that are requested and the rules that they can have.

A function computes a price from one whole number. It always has a rate; further rules change the quantity or the
price, each with one line of code and one value. Everything that a dialogue says about a rule has exactly one wording.
The file `vocabulary.toml` has them all.

The rules of a task are not stated, but they are not uniformly random either: each function has typical rules
(`Function.typical`), which an agent can learn from many dialogues.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Rule:
    """One kind of rule.

    Attributes:
        name: its key.
        values: the values from which it is drawn.
        line: the line of code, with `{v}` for the value and `{n}` for the function's argument.
        question: the agent's question for it.
        cues: words by which the scripted human recognises a question for it.
        answer: the human's answer, with `{v}` for the value.
    """

    name: str
    values: tuple[int, ...]
    line: str
    question: str
    cues: tuple[str, ...]
    answer: str

    @cached_property
    def effect(self) -> Callable[[int, int, int], tuple[int, int]]:
        """The line as a function of quantity, price and value that returns quantity and price."""
        namespace: dict[str, Any] = {}
        source = f"def effect(n, x, v):\n    {self.line.format(n='n', v='v')}\n    return n, x"
        exec(source, namespace)  # noqa: S102 - a line of this package's
        effect: Callable[[int, int, int], tuple[int, int]] = namespace["effect"]
        return effect


@dataclass(frozen=True)
class Function:
    """A function of the family: its name, its argument, the sentence that requests it, its typical rules, and more of
    them in the long families."""

    name: str
    argument: str
    opening: str
    typical: tuple[str, ...]
    more: tuple[str, ...]


_VOCABULARY = tomllib.loads(files("sweet.tasks.micro").joinpath("vocabulary.toml").read_text(encoding="utf-8"))


def _fields(table: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


RULES = tuple(Rule(name, **_fields(table)) for name, table in _VOCABULARY["rule"].items())
"""Every kind of rule, in the order of their lines in the code. No two ever have the same line."""

BY_NAME = {rule.name: rule for rule in RULES}
RATE = BY_NAME["rate"]

FUNCTIONS = tuple(Function(name, **_fields(table)) for name, table in _VOCABULARY["function"].items())
