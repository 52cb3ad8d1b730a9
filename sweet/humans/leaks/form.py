"""The form that a human's reply may have: prose of a language that `vocabulary.toml` knows, numbers, names and values.

What is written otherwise may hold anything: code, whatever it computes; a text in a cipher or with misspelt words,
which has none of the words that all prose has; letters and digits in turns, letters one by one, rows of signs, and
numbers that are codes of letters. Words of the request and the reference are known, so that lists of values stay free.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from sweet.humans.leaks.reading import Atom
from sweet.humans.leaks.variants import LEAST_ENCODED, LONGEST, encoded_in

LEAST_WORDS, PROSE = 12, 0.1
"""Different words that are not known, or half as many with signs of code, from which a text without this share of words
of prose is in no language."""
LEAST_CODE, LEAST_STATEMENTS = 12, 3
"""Operators that are no prose; statements of a function that are none."""


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

    def is_strange(self, known_words: Set[str]) -> bool:
        """Return whether it is no prose; `known_words` count neither for it nor against it."""
        strange = [word for word in self.words if word not in known_words]
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
