"""Programs spelled out in words: each phrase that stands for an operator or a statement is replaced by its symbol.

What results is parsed like code. Prose stays prose: it has articles and words between the names, which do not parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sweet.humans.leaks.tokens import tokens_of

_WORDS = {
    ">=": "is greater than or equal to|greater than or equal to|is at least|at least",
    "<=": "is less than or equal to|less than or equal to|is at most|at most",
    "!=": "is not equal to|not equal to|does not equal|is different from",
    "==": "is equal to|equal to|double equals",
    ">": "is greater than|greater than|is more than|is larger than|is above|exceeds",
    "<": "is less than|less than|is smaller than|is below",
    "in": "is one of|is contained in|is in",
    "not in": "is not in",
    "**": "to the power of|raised to",
    "//": "integer divided by|floor divided by",
    "/": "divided by",
    "*": "multiplied by|times",
    "%": "modulo|mod",
    "+": "plus",
    "-": "minus",
    "=": "equals sign",
    "(": "open parenthesis|open paren|left parenthesis",
    ")": "close parenthesis|close paren|right parenthesis",
    "[": "open bracket|left bracket",
    "]": "close bracket|right bracket",
    "{": "open brace",
    "}": "close brace",
    "\n": "new line|newline|semicolon",
    ":": "colon",
    ",": "comma",
    "_": "underscore",
    ".": "dot",
    "'": "quote",
    " ": "indent|dedent",
}
_SYMBOLS = {phrase: f" {symbol} " for symbol, phrases in _WORDS.items() for phrase in phrases.split("|")}
_COUNTED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)
_SYMBOLS |= {word: str(value) for value, word in enumerate(_COUNTED.split())}
_PHRASE = re.compile(
    r"\b(?:" + "|".join(sorted(_SYMBOLS, key=len, reverse=True)).replace(" ", r"[ \t]+") + r")\b", re.IGNORECASE
)
_EQUALS = re.compile(r"\bequals\b", re.IGNORECASE)
_BLANKS = re.compile(r"[ \t]+")

# Each replaces the words of a statement by the statement on a line of its own. Brackets and strings are single
# characters at that time, so that a comma or colon is one between clauses.
_TARGET = r"([\w.'\ue000-\uf8ff]{1,60})"
_TARGETS = r"([\w.,'\ue000-\uf8ff ]{1,60}?)"
_PART = r"([^;\n]{1,150}?)"
_ENDS = r"(?=[;\n]|[.,:](?:\s|$)|$|\s(?:and[ \t])?then\b)"
_BODY = r"(?:,?[ ](?:then|do)\b:?|:|,(?=\s)|$|(?=[;\n]))"
_RULES = (
    (
        rf"\b(?:for (?:each|every|all|any)|loop over (?:each|every))[ ]{_TARGETS}[ ]in[ ]{_PART}{_BODY}",
        r"\nfor \1 in \2:\n",
    ),
    (rf"\b(?:otherwise|else)[, ]{{1,2}}if[ ]{_PART}{_BODY}", r"\nelif \1:\n"),
    (rf"\bif[ ]{_PART}{_BODY}", r"\nif \1:\n"),
    (rf"\bwhile[ ]{_PART}{_BODY}", r"\nwhile \1:\n"),
    (r"\b(?:otherwise|else)\b[,:]?", "\nelse:\n"),
    (rf"\b(?:set|initiali[sz]e)[ ]{_TARGETS}[ ](?:to|as|=)[ ]{_PART}{_ENDS}", r"\n\1 = \2\n"),
    (rf"\blet[ ]{_TARGETS}[ ](?:be|=|equal)[ ]{_PART}{_ENDS}", r"\n\1 = \2\n"),
    (rf"\b(?:assign|store|put|save)[ ]{_PART}[ ](?:to|in|into|as)[ ]{_TARGET}{_ENDS}", r"\n\2 = \1\n"),
    (rf"\bappend[ ]{_PART}[ ]to[ ]{_TARGET}{_ENDS}", r"\n\2.append(\1)\n"),
    (rf"\badd[ ]{_PART}[ ]to[ ]{_TARGET}{_ENDS}", r"\n\2 += \1\n"),
    (rf"\bsubtract[ ]{_PART}[ ]from[ ]{_TARGET}{_ENDS}", r"\n\2 -= \1\n"),
    (rf"\b(?:increase|increment)[ ]{_TARGET}[ ]by[ ]{_PART}{_ENDS}", r"\n\1 += \2\n"),
    (rf"\b(?:decrease|decrement|reduce)[ ]{_TARGET}[ ]by[ ]{_PART}{_ENDS}", r"\n\1 -= \2\n"),
    (rf"\bmultiply[ ]{_TARGET}[ ]by[ ]{_PART}{_ENDS}", r"\n\1 *= \2\n"),
    (rf"\bdivide[ ]{_TARGET}[ ]by[ ]{_PART}{_ENDS}", r"\n\1 /= \2\n"),
    (r"\b(?:then[ ])?(?:returns?|give back|output|yields?)[ ]", "\nreturn "),
    (r"[ ]is[ ](?=[\d'\"\ue000-\uf8ff]|True\b|False\b|None\b)", " == "),
    (r"[ \t](?:becomes|:=|<-|\u2190)[ \t]", " = "),
    (r"(?:,|\band)?[ ]then\b|,[ ]and\b(?=[ ]*\n)|\bend (?:if|for|while)\b", "\n"),
)
_STATEMENTS = [(re.compile(pattern, re.IGNORECASE | re.MULTILINE), statement) for pattern, statement in _RULES]
_MASKED = re.compile("[\ue000-\uf8ff]")
_FIRST, _LAST = 0xE000, 0xF8FF


def spelled_out(text: str) -> Iterator[str]:
    """Yield the text with words for operators and statements replaced; both variants of `equals`, if it occurs."""
    plain = _BLANKS.sub(" ", _MASKED.sub(" ", text))
    plain = _PHRASE.sub(lambda match: _SYMBOLS.get(match.group().lower(), match.group()), plain)
    plain, groups = _masked(plain)
    for pattern, statement in _STATEMENTS:
        plain = pattern.sub(statement, plain)
    plain = _MASKED.sub(lambda match: groups[ord(match.group()) - _FIRST], plain)
    plain = "\n".join(line.strip(" ,.") for line in plain.split("\n"))
    yield _EQUALS.sub("==", plain)
    if "equals" in plain.lower():
        yield _EQUALS.sub("=", plain)


def _masked(text: str) -> tuple[str, list[str]]:
    """Return a text with its brackets and strings replaced by single characters for private use, and what they were."""
    parts: list[str] = []
    groups: list[str] = []
    depth = begin = done = 0
    for token in tokens_of(text):
        opens = token.kind == "operator" and token.text in "([{"
        closes = token.kind == "operator" and token.text in ")]}"
        if opens and depth == 0:
            begin = token.start
        depth += opens - closes
        if depth == 0 and (closes or token.kind == "string") and len(groups) <= _LAST - _FIRST:
            begin = begin if closes else token.start
            parts += [text[done:begin], chr(_FIRST + len(groups))]
            groups.append(text[begin : token.end])
            done = token.end
    return "".join([*parts, text[done:]]), groups
