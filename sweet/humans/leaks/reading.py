"""Read any text as a row of atoms: operators, names and values, whatever the notation, spelling or language.

An atom is an operator or a statement (`+`, "plus", "плюс" are one, and so are `return` and "zurückgeben"), a number, or
a part of a name: `baseFee`, `base_fee` and "base fee" are the same two. Which words and signs stand for what is said in
`vocabulary.toml`. Accents, letters that look like others, and signs that are named after a letter or an operator are
folded. The time is proportional to the text.
"""

from __future__ import annotations

import functools
import re
import tomllib
import unicodedata
from importlib import resources
from typing import Literal

from sweet.humans.leaks.tree import number_of
from sweet.humans.leaks.variants import LONGEST

AtomKind = Literal["sign", "word", "weak", "code", "name", "value", "prose", "other"]
"""`sign`, `word`: an operator or a statement, as a sign or a word; `weak`: as a word that prose has as often. `code`: a
word of programs in any language. `name`: written as an identifier. `other`: any other word."""

Atom = tuple[str, AtomKind]
"""What an atom is compared by, and its kind."""

WEAK = frozenset({"and", "or", "not", "in", "if", "else", "for", "true", "false", "none", "break", "continue"})
_LONGEST_WORD = 5
"""Characters of a known word in a language without blanks."""
_IMITATED, _LETTERS = "аеорсухіѕјԁһкмнтвгοανερικχ", "aeopcyxisjdhkmhtbroavepikx"
_LOOK_ALIKES = str.maketrans(_IMITATED + _IMITATED.upper(), _LETTERS + _LETTERS.upper())
_LATIN = re.compile("[A-Za-z]")
_SIGNS = {"PLUS": "+", "MINUS": "-", "MULTIPLICATION": "*", "DIVISION": "/", "GREATER": ">", "LESS": "<", "EQUAL": "="}
_ATOM = re.compile(
    r"(\d{1,40}(?:[.,]\d{1,40})?)|([^\W\d][\w'\u2019]{0,200})"
    r"|(\*\*=?|//=?|===?|=/=|!==?|<>|<=|>=|<-|:=|&&|\|\||->|=>|[-+*/%]=|\+\+|--|[^\w\s])"
)
_PARTS = re.compile(r"[A-Z]{1,50}(?![a-z])|[A-Z]?[^\W\d_A-Z]{1,200}|\d{1,40}")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\u1100-\u11ff]")


def atoms_of(text: str) -> list[Atom]:
    """Return the atoms of a text in their order; brackets, stops and marks of lists are none."""
    atoms: list[Atom] = []
    text = folded(text[:LONGEST])
    for match in _ATOM.finditer(text):
        kind, written = match.lastindex, match.group()
        if kind == 1:
            atoms.append((number_of(written.replace(",", ".")), "value"))
        elif kind == 2:
            atoms += _word(written, called=text[match.end() : match.end() + 1] == "(")
        elif (key := OPERATORS.get(written)) is not None and not _is_stop(text, match.start(), match.end()):
            atoms.append((key, "sign"))
            if written[-1] == "=" and written[0] in "+-*/%":
                atoms.append(("=", "sign"))
    return atoms


def folded(text: str) -> str:
    """Return a text without accents and invisible characters, in Latin letters where they are only imitated."""
    if text.isascii():
        return text
    plain = "".join(c if c < "\x80" else _letter(c) for c in unicodedata.normalize("NFKD", text))
    return " ".join(word.translate(_LOOK_ALIKES) if _LATIN.search(word) else word for word in plain.split(" "))


@functools.lru_cache(maxsize=4096)
def _letter(character: str) -> str:
    """Return the letter or operator that a sign is named after; nothing for a mark; any other character as it is."""
    category, name = unicodedata.category(character), unicodedata.name(character, "")
    is_letter = name[-2:-1] == " " and " LETTER " in name
    if category in ("Mn", "Cf"):
        return name[-1].lower() if is_letter and name.startswith("TAG ") else ""
    if category in ("So", "Sm"):
        return (
            name[-1].lower() if is_letter else next((sign for word, sign in _SIGNS.items() if word in name), character)
        )
    return name[-1].lower() if is_letter and name.startswith("LATIN ") else character


def _is_stop(text: str, start: int, end: int) -> bool:
    """Return whether a sign is one of prose: a hyphen, a bullet, percent, an exclamation mark, a slash of two words."""
    sign, before, after = text[start:end], text[start - 1 : start] if start else "\n", text[end : end + 1]
    if sign == "%":
        return before.isdigit() or text[max(start - 2, 0) : start].strip().isdigit()
    if sign in "-*\u00b7":
        return (
            before == "\n" or not (before.isspace() or after.isspace() or not before.isalpha()) or after in ("", "\n")
        )
    if sign == "!":
        return not (after.isalpha() or after == "(")
    return sign in "/&" and before.isalpha() and after.isalpha()


@functools.lru_cache(maxsize=16384)
def _word(written: str, *, called: bool) -> tuple[Atom, ...]:
    lowered = written.casefold()
    if _UNSPACED.search(lowered):
        return tuple(_unspaced(lowered))
    if (key := OPERATORS.get(lowered)) is not None:
        return ((key, "weak" if key in WEAK else "word"),)
    if lowered in CODE and (lowered not in PROSE or (len(written) > 1 and written.isupper())):
        return ((lowered, "code"),)
    if lowered in PROSE:
        return ((lowered, "prose"),)
    parts = [part.casefold() for part in _PARTS.findall(written)]
    kind: AtomKind = "name" if len(parts) > 1 or called or "_" in written else "other"
    return tuple((OPERATORS.get(part, part), kind) for part in parts)


def _unspaced(text: str) -> list[Atom]:
    """Return the atoms of a text without blanks: the longest words that are known, and single characters."""
    atoms: list[Atom] = []
    while text:
        words = (text[:size] for size in range(_LONGEST_WORD, 0, -1))
        word = next((word for word in words if word in OPERATORS or word in PROSE), text[0])
        key = OPERATORS.get(word, word)
        atoms.append(
            (key, "weak" if key in WEAK else "word" if word in OPERATORS else "prose" if word in PROSE else "other")
        )
        text = text[len(word) :]
    return atoms


def _vocabulary() -> tuple[dict[str, str], frozenset[str], frozenset[str]]:
    table = tomllib.loads((resources.files("sweet.humans.leaks") / "vocabulary.toml").read_text("utf-8"))

    def words(*texts: str) -> frozenset[str]:
        terms = (folded(word).casefold() for text in texts for word in text.split())
        return frozenset(word for word in terms if not ("a" <= word <= "z" and len(word) == 1))  # those are names

    operators = {word: key for key in reversed(table["operators"]) for word in words(table["operators"][key])}
    return operators, words(*table["code"].values()), words(*table["prose"].values())


OPERATORS, CODE, PROSE = _vocabulary()
"""The operator of each word and sign that stands for one; the words of programs; those of prose."""
KEYS = frozenset(OPERATORS.values())
