"""Programs spelled out in words: each phrase that stands for an operator or a statement is replaced by its symbol.

What results is parsed like code. Prose stays prose: it has articles and words between the names, which do not parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SYMBOLS = {
    "is greater than or equal to": ">=",
    "greater than or equal to": ">=",
    "is less than or equal to": "<=",
    "less than or equal to": "<=",
    "is at least": ">=",
    "is at most": "<=",
    "at least": ">=",
    "at most": "<=",
    "is not equal to": "!=",
    "not equal to": "!=",
    "does not equal": "!=",
    "is different from": "!=",
    "is equal to": "==",
    "equal to": "==",
    "is greater than": ">",
    "greater than": ">",
    "is more than": ">",
    "is larger than": ">",
    "is above": ">",
    "exceeds": ">",
    "is less than": "<",
    "less than": "<",
    "is smaller than": "<",
    "is below": "<",
    "is one of": "in",
    "is contained in": "in",
    "is in": "in",
    "is not in": "not in",
    "to the power of": "**",
    "raised to": "**",
    "integer divided by": "//",
    "floor divided by": "//",
    "divided by": "/",
    "multiplied by": "*",
    "times": "*",
    "modulo": "%",
    "mod": "%",
    "plus": "+",
    "minus": "-",
    "double equals": "==",
    "equals sign": "=",
    "open parenthesis": "(",
    "close parenthesis": ")",
    "open paren": "(",
    "close paren": ")",
    "left parenthesis": "(",
    "right parenthesis": ")",
    "open bracket": "[",
    "close bracket": "]",
    "left bracket": "[",
    "right bracket": "]",
    "open brace": "{",
    "close brace": "}",
    "new line": "\n",
    "newline": "\n",
    "semicolon": "\n",
    "colon": ":",
    "comma": ",",
    "underscore": "_",
    "dot": ".",
    "quote": "'",
    "indent": " ",
    "dedent": " ",
}
_COUNTED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)
_NUMBERS = {word: str(value) for value, word in enumerate(_COUNTED.split())}
_PHRASE = re.compile(
    r"\b(?:" + "|".join(sorted((*_SYMBOLS, *_NUMBERS), key=len, reverse=True)).replace(" ", r"[ \t]+") + r")\b",
    re.IGNORECASE,
)
_EQUALS = re.compile(r"\bequals\b", re.IGNORECASE)
_BLANKS = re.compile(r"[ \t]+")

# Each replaces the words of a statement by the statement on a line of its own. A part has no line break or stop.
_PART = r"([^,.;:\n]{1,80}?|[^;\n]{1,120}?)"
_ENDS = r"(?=[;\n]|[.,:](?:\s|$)|$|\s(?:and[ \t])?then\b)"
_BODY = r"(?:,?[ ](?:then|do)\b:?|:|,(?=\s)|$|(?=\n))"
_STATEMENTS = [
    (
        re.compile(
            rf"\b(?:for each|for every|for all|loop over each)[ ]([\w ,()]{{1,60}}?)[ ]in[ ]{_PART}{_BODY}",
            re.I | re.M,
        ),
        r"\nfor \1 in \2:\n",
    ),
    (
        re.compile(rf"\b(?:otherwise|else)[, ]{{1,2}}if[ ]{_PART}{_BODY}", re.I | re.M),
        r"\nelif \1:\n",
    ),
    (re.compile(rf"\bif[ ]{_PART}{_BODY}", re.I | re.M), r"\nif \1:\n"),
    (re.compile(rf"\bwhile[ ]{_PART}{_BODY}", re.I | re.M), r"\nwhile \1:\n"),
    (re.compile(r"\b(?:otherwise|else)\b[,:]?", re.I), "\nelse:\n"),
    (
        re.compile(
            rf"\b(?:set|initiali[sz]e)[ ]([\w.\[\]'\"]{{1,60}}|[\w.,\[\]'\" ]{{1,60}}?)[ ](?:to|as|=)[ ]{_PART}{_ENDS}",
            re.I,
        ),
        r"\n\1 = \2\n",
    ),
    (re.compile(rf"\blet[ ]([\w.,\[\]'\" ]{{1,60}}?)[ ](?:be|=|equal)[ ]{_PART}{_ENDS}", re.I), r"\n\1 = \2\n"),
    (
        re.compile(
            rf"\b(?:assign|store|put|save)[ ]([^;\n]{{1,120}}?)[ ](?:to|in|into|as)[ ]([\w.\[\]'\"]{{1,60}}){_ENDS}",
            re.I,
        ),
        r"\n\2 = \1\n",
    ),
    (re.compile(rf"\bappend[ ]([^;\n]{{1,120}}?)[ ]to[ ]([\w.\[\]'\"]{{1,60}}){_ENDS}", re.I), r"\n\2.append(\1)\n"),
    (re.compile(rf"\badd[ ]([^;\n]{{1,120}}?)[ ]to[ ]([\w.\[\]'\"]{{1,60}}){_ENDS}", re.I), r"\n\2 += \1\n"),
    (re.compile(rf"\bsubtract[ ]([^;\n]{{1,120}}?)[ ]from[ ]([\w.\[\]'\"]{{1,60}}){_ENDS}", re.I), r"\n\2 -= \1\n"),
    (re.compile(rf"\b(?:increase|increment)[ ]([\w.\[\]'\"]{{1,60}})[ ]by[ ]{_PART}{_ENDS}", re.I), r"\n\1 += \2\n"),
    (
        re.compile(rf"\b(?:decrease|decrement|reduce)[ ]([\w.\[\]'\"]{{1,60}})[ ]by[ ]{_PART}{_ENDS}", re.I),
        r"\n\1 -= \2\n",
    ),
    (re.compile(rf"\bmultiply[ ]([\w.\[\]'\"]{{1,60}})[ ]by[ ]{_PART}{_ENDS}", re.I), r"\n\1 *= \2\n"),
    (re.compile(rf"\bdivide[ ]([\w.\[\]'\"]{{1,60}})[ ]by[ ]{_PART}{_ENDS}", re.I), r"\n\1 /= \2\n"),
    (re.compile(r"\b(?:then[ ])?(?:returns?|give back|output|yields?)[ ]", re.I), "\nreturn "),
    (re.compile(r"[ \t](?:becomes|:=|<-|\u2190|\u2190)[ \t]", re.I), " = "),
    (re.compile(r"(?:,|\band)?[ ]then\b|,[ ]and\b(?=[ ]*\n)|\bend (?:if|for|while)\b", re.I), "\n"),
]


def spelled_out(text: str) -> Iterator[str]:
    """Yield the text with words for operators and statements replaced; both readings of `equals`, if it occurs."""
    plain = _BLANKS.sub(" ", text)
    plain = _PHRASE.sub(_symbol, plain)
    for pattern, statement in _STATEMENTS:
        plain = pattern.sub(statement, plain)
    plain = "\n".join(line.strip(" ,.") for line in plain.split("\n"))
    yield _EQUALS.sub("==", plain)
    if "equals" in plain.lower():
        yield _EQUALS.sub("=", plain)


def _symbol(match: re.Match[str]) -> str:
    phrase = _BLANKS.sub(" ", match.group().lower())
    if phrase in _NUMBERS:
        return _NUMBERS[phrase]
    return f" {_SYMBOLS[phrase]} "
