"""The ways in which a text can be read as source: as it is, unescaped, or decoded; and whether it may be encoded.

A variant is text again. Nothing is executed, and each variant is bounded by `LONGEST`.
"""

from __future__ import annotations

import codecs
import functools
import html
import re
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

LONGEST = 12_000
"""Characters of a text that are read as a program; a reply is cut to far fewer."""
LEAST_ENCODED = 48
"""Characters that may be encoded, in runs of 24 or more, of what is no prose."""
LEAST_LETTERS, LEAST_ROWS, LEAST_CODES, LEAST_NUMBERS = 20, 12, 24, 48
"""Letters one by one, rows of signs, codes of letters, and any numbers that are no prose."""
_SIGNS = ("return", "def ", "=", "<", "if ")

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*$", re.MULTILINE)
_NAMED = re.compile(r"(?<!`)`([\w.]{1,60}|'[^'`\n]{0,60}'|\"[^\"`\n]{0,60}\")`(?!`)")
_BACKTICKS = re.compile(r"`+")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d\u00d7\u00f7\u2212\u00a0", "''\"\"*/- ") | str.maketrans(
    {"\u2264": "<=", "\u2265": ">=", "\u2260": "!="}
)
_CODE_TAG = re.compile(r"</?(?:code|pre|br|p|li|ul|ol|div|span|kbd|tt)\b[^<>\n]{0,100}>", re.IGNORECASE)
_MARKER = re.compile(
    r"^[ \t]{0,40}(?:(?:>{1,3}|\.\.\.|In \[\d{0,4}\]:|\|)[ \t]{0,8}){0,4}"
    r"(?:(?:(?:line|step|l)?[ ]?\#?\d{1,4}[ ]{0,2}(?:[:.)|\]]|->|-)(?:[ \t]|(?=[A-Za-z_]))|\d{1,4}(?:\t|[ ]{2,}))"
    r"[ \t]{0,40})?"
    r"(?:[-*\u2022][ \t]{1,8})?",
    re.IGNORECASE,
)
_DIFF = re.compile(r"^[ \t]{0,20}[-+][ \t]?", re.MULTILINE)
_BOLD = re.compile(r"^(?:\*\*|__)(?!\*)|(?:\*\*|__)[ \t]*$", re.MULTILINE)
_SPACED_OUT = re.compile(r"(?:.[ ]){10,}.|(?:\S[-.,|_]){10,}\S", re.DOTALL)
_RUN = re.compile(r"\S{24,}")
_CHANGE = re.compile(r"(?=[a-z][A-Z0-9]|[A-Z][0-9]|[0-9][A-Za-z])")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|\\[xu][0-9A-Fa-f]{2}|&#\w{2,6};|U\+[0-9A-Fa-f]{4}|\\[0-7]{3}")
_LETTER = re.compile(r"(?<![^\W_])[^\W\d_](?![^\W_])")
_NUMBER = re.compile(r"\b[0-9a-fA-F]{2,8}\b")


def variants_of(text: str) -> list[str]:
    """Return each variant of a text once."""
    text = text[:LONGEST]
    plain = cleaned(text)
    variants = [plain]
    if sum(line.lstrip()[:1] in ("+", "-") for line in plain.split("\n")) >= 2:
        variants.append(_DIFF.sub("", plain))
    if (unescaped := _unescaped(plain)) != plain:
        variants.append(cleaned(unescaped))
    variants += map(cleaned, decodings(text))
    return [part[:LONGEST] for part in dict.fromkeys(variants) if part.strip()]


def dense(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())


def cleaned(text: str) -> str:
    """Return a text without the marks around lines of code: fences, backticks, quotation marks, numbers, bullets.

    What stands in backticks gets a line of its own, unless it is a single name or value.
    """
    plain = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).translate(_QUOTES)
    plain = plain.replace("\r\n", "\n").replace("\r", "\n")
    plain = _BACKTICKS.sub("\n", _NAMED.sub(r"\1", _FENCE.sub("", plain)))
    plain = _BOLD.sub("", _CODE_TAG.sub("\n", plain))
    return "\n".join(_MARKER.sub("", line, count=1) for line in plain.split("\n"))


def _unescaped(text: str) -> str:
    if "\\" in text:
        text = (
            text.replace("\\r", "").replace("\\n", "\n").replace("\\t", "    ").replace('\\"', '"').replace("\\'", "'")
        )
        lines = text.split("\n")
        # The quotation marks around an escaped text, as in JSON, are not part of its first and last line.
        if len(lines) > 1:
            text = "\n".join(line.replace('"', "\n") if line.count('"') % 2 else line for line in lines)
    if "&" in text:
        text = html.unescape(text)
    return text


def decodings(text: str) -> Iterator[str]:
    """Yield what the text is if it is in an encoding that `encoded_in` does not find."""
    if _SPACED_OUT.search(text):
        yield _SPACED_OUT.sub(lambda match: match.group()[::2], text)
    if "%" in text:
        yield unquote(text, errors="replace")
    for decoded in (text[::-1], "\n".join(line[::-1] for line in text.split("\n")), codecs.encode(text, "rot13")):
        # Every text can be read so; few become programs.
        if any(sign in decoded for sign in _SIGNS):
            yield decoded


@functools.lru_cache(maxsize=512)
def encoded_in(text: str) -> int:
    """Return how many characters of a text may be encoded: in runs, letter by letter, as signs, or as numbers."""
    encoded = 8 * len(set(_ESCAPE.findall(text))) + _codes(text)
    for run in set(_RUN.findall(text)):
        if "://" not in run and len(_CHANGE.findall(run)) >= 0.15 * len(run) and len(set(run)) >= 10:
            encoded += len(run)
    if not text.isascii():
        encoded += 2 * sum(
            unicodedata.category(c) in ("So", "Cf", "Co", "Cn") for c in text if not "\u2500" <= c <= "\u257f"
        )
    chunks, letters = text.split(), _LETTER.findall(text)
    if len(letters) >= max(LEAST_LETTERS, len(chunks) / 2) and len(set(letters)) >= 6:
        encoded += 3 * len(letters)
    rows = [chunk for chunk in chunks if not any(map(str.isalnum, chunk))]
    return encoded + (4 * len(rows) if len(rows) >= max(LEAST_ROWS, len(chunks) / 2) and len(set(rows)) >= 6 else 0)


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
