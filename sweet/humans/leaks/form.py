"""The form that a human's reply may have: prose of a language that `vocabulary.toml` knows, numbers, names and values.

What is written otherwise may hold anything: code, whatever it computes; a text in a cipher or with misspelt words,
which has none of the words that all prose has; letters and digits in turns, letters one by one, rows of signs, and
numbers that are codes of letters. Words of the request and the reference are known, so that lists of values stay free.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence, Set
from typing import NamedTuple

from sweet.humans.leaks.reading import Atom
from sweet.humans.leaks.variants import LONGEST

LEAST_WORDS, PROSE = 12, 0.1
"""Different words that are not known, or half as many with signs of code, from which a text without this share of words
of prose is in no language."""
LEAST_ENCODED = 48
"""Characters that may be encoded, in runs of 24 or more, of what is no prose."""
LEAST_LETTERS, LEAST_ROWS, LEAST_CODES, LEAST_NUMBERS = 20, 12, 24, 48
"""Letters one by one, rows of signs, codes of letters, and any numbers that are no prose."""
LEAST_CODE, LEAST_STATEMENTS = 12, 3
"""Operators that are no prose; statements of a function that are none."""

_RUN = re.compile(r"\S{24,}")
_CHANGE = re.compile(r"(?=[a-z][A-Z0-9]|[A-Z][0-9]|[0-9][A-Za-z])")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|\\[xu][0-9A-Fa-f]{2}|&#\w{2,6};|U\+[0-9A-Fa-f]{4}|\\[0-7]{3}")
_LETTER = re.compile(r"(?<![^\W_])[^\W\d_](?![^\W_])")
_NUMBER = re.compile(r"\b[0-9a-fA-F]{2,8}\b")


class Form(NamedTuple):
    """How many words of prose, operators, functions, statements, atoms and characters that may be encoded replies have.

    Attributes:
        words: those in Latin letters that are neither prose nor operators.
        signs: operators, without the `=` between a name and a value, which tells a fact.
    """

    prose: int = 0
    words: tuple[str, ...] = ()
    signs: int = 0
    functions: int = 0
    statements: int = 0
    atoms: int = 0
    encoded: int = 0

    def is_strange(self, known: Set[str]) -> bool:
        """Return whether it is no prose; `known` words count neither for it nor against it."""
        strange = [word for word in self.words if word not in known]
        different = len(set(strange))
        return (
            self.encoded >= LEAST_ENCODED
            or (self.functions > 0 and self.statements >= max(LEAST_STATEMENTS, self.prose))
            or self.signs >= max(LEAST_CODE, 0.2 * self.atoms, self.prose)
            or (
                different + min(self.signs, different) >= LEAST_WORDS
                and self.prose < PROSE * (self.prose + len(strange))
            )
        )


def form_of(text: str, atoms: Sequence[Atom]) -> Form:
    """Return the form of a reply with these atoms."""
    kinds = [kind for _, kind in atoms]
    signs = sum(
        kind == "sign" and (key != "=" or kinds[i + 1 : i + 2] != ["value"]) for i, (key, kind) in enumerate(atoms)
    )
    words = tuple(key for key, kind in atoms if kind in ("other", "name") and key.isascii() and len(key) > 1)
    functions = sum(key == "def" for key, _ in atoms)
    statements = atoms.count(("=", "sign")) + atoms.count(("return", "word"))
    return Form(kinds.count("prose"), words, signs, functions, statements, len(atoms), encoded_in(text[:LONGEST]))


@functools.lru_cache(maxsize=512)
def encoded_in(text: str) -> int:
    """Return how many characters of a text may be encoded: in runs, letter by letter, as signs, or as numbers."""
    found = 8 * len(set(_ESCAPE.findall(text))) + _codes(text)
    for run in set(_RUN.findall(text)):
        if "://" not in run and len(_CHANGE.findall(run)) >= 0.15 * len(run) and len(set(run)) >= 10:
            found += len(run)
    if not text.isascii():
        found += 2 * sum(
            unicodedata.category(c) in ("So", "Cf", "Co", "Cn") for c in text if not "\u2500" <= c <= "\u257f"
        )
    chunks, letters = text.split(), _LETTER.findall(text)
    if len(letters) >= max(LEAST_LETTERS, len(chunks) / 2) and len(set(letters)) >= 6:
        found += 3 * len(letters)
    rows = [chunk for chunk in chunks if not any(map(str.isalnum, chunk))]
    return found + (4 * len(rows) if len(rows) >= max(LEAST_ROWS, len(chunks) / 2) and len(set(rows)) >= 6 else 0)


def _codes(text: str) -> int:
    """Return how many characters numbers stand for, if they are many and most are codes of letters and signs."""
    numbers = _NUMBER.findall(text)
    if len(numbers) < LEAST_CODES or len(set(numbers)) < 8:
        return 0
    for base, digits in ((10, "0123456789"), (8, "01234567"), (16, "0123456789abcdefABCDEF"), (2, "01")):
        values = [int(number, base) for number in numbers if not number.strip(digits)]
        letters = [chr(value) for value in values if 32 <= value < 127]
        if len(letters) >= 0.9 * len(numbers) and sum(map(str.isalpha, letters)) >= 0.35 * len(letters):
            return 2 * len(numbers)
    return 2 * len(numbers) if len(numbers) >= LEAST_NUMBERS else 0
