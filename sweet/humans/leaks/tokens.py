"""Split any text, program or prose, into tokens; no text is an error, and the time is linear.

An apostrophe inside a word is part of the word. A quotation mark that is not closed on its line, and a bracket without
its partner, are single characters without a meaning. A string has at most 600 characters (1000 between triple quotation
marks), because the time for marks that are not closed is proportional to that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

TokenKind = Literal["name", "number", "string", "operator", "line", "other"]

_TOKEN = re.compile(
    r"""
    (?P<skip>[^\S\n]+|\\\n|\#[^\n]*)
  | (?P<line>\n)
  | (?P<string>(?:[rbfuRBFU]{1,2})?(?:
        \"\"\"(?:[^"\\]|\\.|"(?!\"\")){0,1000}\"\"\" | '''(?:[^'\\]|\\.|'(?!'')){0,1000}'''
      | "(?:[^"\\\n]|\\.){0,600}" | '(?:[^'\\\n]|\\.){0,600}'))
  | (?P<number>(?:0[xX][0-9a-fA-F_]{1,40}|0[bB][01_]{1,80}|0[oO][0-7_]{1,40}
      |(?:\d[\d_]{0,40}(?:\.\d[\d_]{0,40}|\.(?!\w|\.))?|\.\d[\d_]{0,40})(?:[eE][+-]?\d{1,4})?)[jJ]?)
  | (?P<name>[^\W\d]\w{0,200}(?:['\u2019](?:t|s|re|ve|ll|d|m)\b)?)
  | (?P<operator>\*\*=|//=|<<=|>>=|->|:=|\*\*|//|<<|>>|<=|>=|==|!=|<>|[-+*/%&|^@]=|[-+*/%&|^~<>=()\[\]{},:.;@])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
DEEPEST = 20
"""Brackets inside each other; deeper ones are single characters without a meaning."""
_CLOSES = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True, slots=True)
class Token:
    """A token.

    Attributes:
        spaced: whether white space or a line break precedes it.
        start, end: its place in the text.
    """

    kind: TokenKind
    text: str
    spaced: bool
    start: int
    end: int


END = Token("line", "", True, 0, 0)


def tokens_of(text: str) -> list[Token]:
    """Return the tokens; lines do not end inside brackets, and a last line break is added."""
    tokens: list[Token] = []
    spaced = True
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "skip":
            spaced = True
            continue
        tokens.append(Token(kind, match.group(), spaced, match.start(), match.end()))  # type: ignore[arg-type]
        spaced = kind == "line"
    tokens.append(Token("line", "", True, len(text), len(text)))
    return _with_brackets(tokens)


def _with_brackets(tokens: list[Token]) -> list[Token]:
    """Return the tokens with brackets that have no partner made meaningless, without line breaks inside brackets."""
    opened: list[int] = []
    partner: dict[int, int] = {}
    deep: dict[int, int] = {}
    for i, token in enumerate(tokens):
        if token.kind != "operator":
            continue
        if token.text in "([{":
            opened.append(i)
            deep[i] = len(opened)
        elif token.text in _CLOSES:
            # A bracket of another form in between has no partner.
            while opened and tokens[opened[-1]].text != _CLOSES[token.text]:
                opened.pop()
            if opened:
                partner[opened.pop()] = i
    closing = set(partner.values())
    result, depth = [], 0
    for i in list(partner):
        if deep[i] > DEEPEST:
            closing.discard(partner.pop(i))
    for i, token in enumerate(tokens):
        if token.kind == "operator" and token.text in "([{)]}":
            if i in partner:
                depth += 1
            elif i in closing:
                depth -= 1
            else:
                token = Token("other", token.text, token.spaced, token.start, token.end)
        if token.kind != "line" or depth == 0:
            result.append(token)
    return result
