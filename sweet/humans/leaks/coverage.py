"""Has a human given the operators, names and values of a program in order, in whatever notation and language?

Beneath the parser (`find`), which knows Python, this compares rows of atoms (sweet.humans.leaks.reading). What counts
in a reply is where code is dense: around an atom, operators and identifiers are as many as words of prose. A person who
tells facts writes few such places, so that little is covered by chance. Of what is dense, the longest common
subsequence with the reference goes on over the replies of a dialogue, as the bits of a number: a reply is read once.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from sweet.humans.leaks.grammar import KEYWORDS
from sweet.humans.leaks.reading import CODE, KEYS, OPERATORS, Atom, atoms_of
from sweet.humans.leaks.tokens import END, tokens_of
from sweet.humans.leaks.tree import BUILTINS

WINDOW = 3
"""Atoms to each side of one that say whether code is dense there."""
LEAST, LEAST_OPERATORS = 12, 7
"""Atoms, and operators among them, that give something away: more than an expression that may be said (`SHORT`) has."""
LEAST_TOLD, LEAST_NAMED, TOLD = 9, 5, 0.15
"""Operands, and names among them, in an order that gives something away without operators; their share of a reply."""
LEAST_BETWEEN, BETWEEN = 7, 0.1
"""How often, and in which share of a reply's atoms, a word occurs that only stands between the others."""
GRAM, LEAST_GRAMS = 5, 12
"""Letters in a row that are compared, and such rows of the reference that first letters do not have by chance."""
_SPELLED = str.maketrans("013457", "oleast", "aeiouy")
_STATEMENTS = [(word, key) for word, key in OPERATORS.items() if word in KEYWORDS or word in BUILTINS]
_OPERATES = frozenset({"sign", "word", "code"})
_STRONG, _SAYS = _OPERATES | {"name"}, _OPERATES | {"value"}


@dataclass(frozen=True)
class Row:
    """A row of keys, as the bits at which each key stands. A state has a bit for each that was not met in order, and
    `start` all."""

    places: dict[str, int]
    size: int
    start: int

    @staticmethod
    def of(keys: Sequence[str]) -> Row:
        """Return the row of keys in their order."""
        places: dict[str, int] = {}
        for i, key in enumerate(keys):
            places[key] = places.get(key, 0) | 1 << i
        return Row(places, len(keys), (1 << len(keys)) - 1)

    def follow(self, state: int, keys: Sequence[str]) -> int:
        """Return the state after more keys (the longest common subsequence in bits, of Hyyrö)."""
        for key in keys:
            if met := state & self.places.get(key, 0):
                state = ((state + met) | (state - met)) & self.start
        return state

    def matched(self, state: int) -> int:
        """Return how many keys were met in their order."""
        return self.size - state.bit_count()


@dataclass(frozen=True)
class ReferenceAtoms:
    """What of a reference may not be given.

    Attributes:
        rows: its atoms; those without names; and its operands, which are names and values.
        spelled: its names and the words of Python by their skeletons.
        grams: its letters in rows.
        known: what the request and all of the reference have.
    """

    rows: tuple[Row, Row, Row]
    names: Row
    operators: Counter[str]
    distinct: frozenset[str]
    spelled: dict[str, str]
    grams: frozenset[str]
    known: frozenset[str]


@functools.lru_cache(maxsize=256)
def reference_atoms(source: str, request: str) -> ReferenceAtoms:
    """Return what of the body of a reference may not be given; comments and texts on lines of their own are no part."""
    all_tokens = tokens_of(source)
    neighbours = zip([END, *all_tokens], all_tokens, [*all_tokens[1:], END], strict=False)
    docstrings = {id(token) for a, token, b in neighbours if token.kind == "string" and a.kind == b.kind == "line"}
    tokens = [token for token in all_tokens if token.kind != "line" and id(token) not in docstrings]
    if tokens and tokens[0].text == "def":
        ends = (i for i, token in enumerate(tokens) if token.text == ":" and tokens[i - 1].text == ")")
        tokens = tokens[next(ends, 0) :]
    atoms = [(key, token.kind, kind) for token in tokens for key, kind in atoms_of(token.text) if key not in CODE]
    every = [key for key, _, _ in atoms]
    operators = [key for key, token, _ in atoms if key in KEYS and token != "string"]
    operands = [key for key, token, _ in atoms if key not in KEYS or token == "string"]
    names = [key for key, token, kind in atoms if key not in KEYS and token != "string" and kind != "value"]
    plain = [key for key, token, kind in atoms if key in KEYS or token == "string" or kind == "value"]
    spelled = {skeleton(word): key for word, key in [*_STATEMENTS, *((name, name) for name in names)]}
    return ReferenceAtoms(
        (Row.of(every), Row.of(plain), Row.of(operands)),
        Row.of(names),
        Counter(operators),
        frozenset(every),
        {written: key for written, key in spelled.items() if len(written) > 1},
        frozenset(_grams(source)),
        frozenset(key for text in (source, request) for key, _ in atoms_of(text)),
    )


def _grams(text: str) -> set[str]:
    letters = "".join(filter(str.isalnum, text.casefold()))
    return {letters[i : i + GRAM] for i in range(len(letters) - GRAM + 1)}


def spells(reference: ReferenceAtoms, text: str) -> bool:
    """Return whether the first letters of the lines or words of a text spell a part of the reference."""
    for parts in (text.split("\n"), text.split()):
        rows = _grams("".join(part.lstrip()[:1] for part in parts)) if len(parts) >= LEAST_GRAMS else set()
        if len(rows & reference.grams) >= max(LEAST_GRAMS, len(rows) / 2):
            return True
    return False


@functools.lru_cache(maxsize=16384)
def skeleton(word: str) -> str:
    """Return the consonants of a word in the order of the alphabet: those of a word that is misspelt are the same."""
    return "".join(sorted(word.translate(_SPELLED)))


def dense(atoms: Sequence[Atom], names: Set[str]) -> list[str]:
    """Return the keys of the atoms around which there is more code than prose."""
    counts = Counter(key for key, kind in atoms if kind in ("prose", "other"))
    between = {key for key, count in counts.items() if count >= max(LEAST_BETWEEN, BETWEEN * len(atoms))} - names
    atoms = [atom for atom in atoms if atom[0] not in between]
    strong, prose = [0], [0]
    operates = [False, *(kind in _OPERATES for _, kind in atoms), False]
    for (key, kind), before, after in zip(atoms, operates, operates[2:], strict=False):
        is_prose = kind == "prose" or (kind == "other" and not before and not after)
        strong.append(strong[-1] + (kind in _STRONG))
        prose.append(prose[-1] + (is_prose and key not in names))
    if strong[-1] < 2:
        return []
    keys = []
    for i, (key, _) in enumerate(atoms):
        begin, end = max(i - WINDOW, 0), min(i + WINDOW + 1, len(atoms))
        code = strong[end] - strong[begin]
        if code and code >= prose[end] - prose[begin]:
            keys.append(key)
    return keys


@dataclass(frozen=True)
class Coverage:
    """What the human has given of a reference in some replies.

    Attributes:
        dense: the states of the rows, by what was dense.
        operators, distinct: the operators and the different atoms that were dense.
        operands, names: the states of the rows of operands and names, by all atoms of the replies that had many.
    """

    dense: tuple[int, ...]
    operators: Counter[str]
    distinct: frozenset[str]
    operands: int
    names: int

    @staticmethod
    def nothing(reference: ReferenceAtoms) -> Coverage:
        """Return what is given before the first reply."""
        states = tuple(row.start for row in reference.rows)
        return Coverage(states, Counter(), frozenset(), states[2], reference.names.start)

    def extended(self, reference: ReferenceAtoms, atoms: Sequence[Atom]) -> Coverage:
        """Return what is given with one more reply."""
        names, coverage = reference.names.places, self
        atoms = [
            (reference.spelled.get(skeleton(key), key), kind) if kind == "other" and key not in names else (key, kind)
            for key, kind in atoms
        ]
        if keys := dense(atoms, names.keys()):
            coverage = replace(
                self,
                dense=tuple(row.follow(state, keys) for row, state in zip(reference.rows, self.dense, strict=True)),
                operators=self.operators + Counter(key for key in keys if key in reference.operators),
                distinct=self.distinct.union(reference.distinct.intersection(keys)),
            )
        reply_keys = [key for key, kind in atoms if kind != "sign"]
        operands = reference.rows[2].follow(self.operands, reply_keys)
        if self.operands.bit_count() - operands.bit_count() >= TOLD * len(reply_keys) > 0:
            coverage = replace(coverage, operands=operands, names=reference.names.follow(self.names, reply_keys))
        return coverage

    def gives(self, reference: ReferenceAtoms, before: Coverage) -> bool:
        """Return whether more than before is given, and a program: by the order of its atoms, without its names, or of
        its operands with operators elsewhere; by its different atoms; or by its operands among few other words."""
        (every, plain, operands), names = reference.rows, reference.names
        matched, matched_operands = every.matched(self.dense[0]), operands.matched(self.operands)
        bag = (self.operators & reference.operators).total()
        is_more = matched > every.matched(before.dense[0]) or self.operators != before.operators
        if is_more and (
            matched >= max(LEAST, 0.45 * every.size)
            or plain.matched(self.dense[1]) >= max(LEAST, 0.6 * plain.size)
            or (
                bag >= max(LEAST_OPERATORS, 0.7 * reference.operators.total())
                and operands.matched(self.dense[2]) >= 0.3 * operands.size
            )
            or len(self.distinct) >= max(LEAST, 0.65 * len(reference.distinct))
        ):
            return True
        named = names.matched(self.names)
        return matched_operands > operands.matched(before.operands) and (
            (matched_operands >= max(LEAST_TOLD, 0.7 * operands.size) and named >= max(LEAST_NAMED, 0.6 * names.size))
            or named >= max(LEAST_TOLD, 0.8 * names.size)
        )


@functools.lru_cache(maxsize=512)
def rows_of(text: str) -> frozenset[tuple[str, ...]]:
    """Return each three atoms in a row of a text, all names being alike; those of words alone say nothing."""
    atoms = atoms_of(text)
    return frozenset(row for i, row in enumerate(_rows(atoms)) if any(kind in _SAYS for _, kind in atoms[i : i + 3]))


def without(atoms: Sequence[Atom], shown_rows: Set[tuple[str, ...]]) -> list[Atom]:
    """Return the atoms that are in none of the rows that were shown, and the first words of functions."""
    covered = {j for i, row in enumerate(_rows(atoms)) if row in shown_rows for j in range(i, i + 3)}
    return [atom for i, atom in enumerate(atoms) if i not in covered or atom[0] == "def"]


def _rows(atoms: Sequence[Atom]) -> Iterator[tuple[str, ...]]:
    keys = ["name" if kind in ("other", "name") and key not in KEYS else key for key, kind in atoms]
    return zip(keys, keys[1:], keys[2:], strict=False)
