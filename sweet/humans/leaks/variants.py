"""The ways in which a text can be read as source: as it is, unescaped, or decoded.

A variant is text again. Nothing is executed, and each variant is bounded by `LONGEST`.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

LONGEST = 12_000
"""Characters of a text that are read as a program; a reply is cut to far fewer."""
MOST_PARTS = 8
"""Encoded parts of a text that are decoded."""
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
_BASE64 = re.compile(r"[A-Za-z0-9+/_-](?:[A-Za-z0-9+/_-]|\s(?=[A-Za-z0-9+/_-]{4})){14,}={0,2}")
_HEX = re.compile(r"(?:(?:0x|\\x)?[0-9a-fA-F]{2}[\s,:]{0,2}){12,}")
_BYTES = re.compile(r"(?:\b\d{2,3}\b[\s,;]{1,2}){8,}\d{2,3}\b")
_VALUE = re.compile(r"\d+")
_BITS = re.compile(r"(?:\b[01]{7,8}\b\s{0,2}){8,}")
_SPACED_OUT = re.compile(r"(?:.[ ]){10,}.|(?:\S[-.,|_]){10,}\S", re.DOTALL)
_HEX_DIGITS = re.compile(r"0x|\\x|[^0-9a-fA-F]")


def variants_of(text: str) -> list[str]:
    """Return each variant of a text once."""
    text = text[:LONGEST]
    plain = cleaned(text)
    found = [plain]
    if sum(line.lstrip()[:1] in ("+", "-") for line in plain.split("\n")) >= 2:
        found.append(_DIFF.sub("", plain))
    if (unescaped := _unescaped(plain)) != plain:
        found.append(cleaned(unescaped))
    found += map(cleaned, decodings(text))
    return [part[:LONGEST] for part in dict.fromkeys(found) if part.strip()]


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
    """Yield what the text is if it is in a common encoding, or contains a part that is."""
    for part in _BASE64.findall(text)[:MOST_PARTS]:
        yield from _base64(part)
    for part in _HEX.findall(text)[:MOST_PARTS]:
        digits = _HEX_DIGITS.sub("", part)
        yield _decoded(binascii.unhexlify(digits[: len(digits) // 2 * 2]))
    for part in _BYTES.findall(text)[:MOST_PARTS]:
        values = [int(value) for value in _VALUE.findall(part)]
        yield "".join(chr(value) for value in values if value < 256)
    for part in _BITS.findall(text)[:MOST_PARTS]:
        yield "".join(chr(int(bits, 2)) for bits in part.split())
    if _SPACED_OUT.search(text):
        yield _SPACED_OUT.sub(lambda match: match.group()[::2], text)
    if "%" in text:
        yield unquote(text, errors="replace")
    for decoded in (text[::-1], "\n".join(line[::-1] for line in text.split("\n")), codecs.encode(text, "rot13")):
        # Every text can be read so; few become programs.
        if any(sign in decoded for sign in _SIGNS):
            yield decoded


def _base64(part: str) -> Iterator[str]:
    packed = "".join(part.split()).rstrip("=").replace("-", "+").replace("_", "/")
    for end in (len(packed), len(packed) - 1):
        padded = packed[:end] + "=" * (-end % 4)
        try:
            yield _decoded(base64.b64decode(padded, validate=True))
            return
        except (binascii.Error, ValueError):
            continue


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
