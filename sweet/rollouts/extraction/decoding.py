"""Puts programs back together from what a human said: code, base64, syntax trees, JavaScript, steps.

Each decoder maps the human's replies, in their order, to lines of Python, or to an empty text where the replies do not
have its form. It works on characters and lines and executes and compiles nothing: the texts are those of a model.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Iterable, Iterator, Sequence

from sweet.humans.leaks.grammar import Parser
from sweet.humans.leaks.notations import INDENT, javascript_in, spans, steps_in, tree_in
from sweet.humans.leaks.tokens import tokens_of

LONGEST_LINE = 400
"""A longer line is not taken for code."""
AGAIN = 24
"""Characters with which a piece repeats the text from its beginning."""

_BASE64_RUN = re.compile(r"[A-Za-z0-9+/]{16,}+={0,2}")

_LEAVES = frozenset(("return", "raise", "break", "continue", "pass"))


def is_statement(line: str) -> bool:
    """Return whether a line is statements of Python, or calls a method; prose is none."""
    text = line.strip()
    if not text or len(text) > LONGEST_LINE:
        return False
    tokens = tokens_of(text)
    parser, at, forms = Parser(tokens), 0, []
    while tokens[at].kind != "line":
        parsed = parser.statement(at)
        if parsed is None or parsed.end <= at:
            return False
        forms.append(parsed.form)
        at = parsed.end + (tokens[parsed.end].text == ";")
    calls = text.endswith(")") and "." in text.partition("(")[0]
    return bool(forms) and (forms[0] != "expression" or (calls and len(forms) == 1))


def without_marker(line: str) -> str:
    """Return a line without the marker of a list before it: `3. `, `- `, `Line 3: `."""
    text = line.strip()
    if text[:5].lower() == "line ":
        text = text[5:].lstrip()
    digits = len(text) - len(text.lstrip("0123456789"))
    if digits and text[digits : digits + 1] in (".", ":", ")"):
        return text[digits + 1 :].lstrip(" ")
    return text[2:] if text[:2] in ("- ", "* ") else line


def fenced(reply: str) -> str | None:
    """Return what is in the fences of a reply, an open one included; None without any."""
    parts = reply.split("```")
    if len(parts) < 2:
        return None
    blocks = []
    for part in parts[1::2]:
        first, newline, rest = part.partition("\n")
        named = newline and first.strip().replace("+", "").isalnum() and not is_statement(first)
        blocks.append(rest if named or not first.strip() else part)
    return "\n".join(block.strip("\n").rstrip() for block in blocks if block.strip())


def code_in(reply: str) -> str:
    """Return the code in a reply: its fences, or its lines and its words in backticks that are statements."""
    block = fenced(reply)
    if block is not None:
        return block
    found: list[str] = []
    for line in reply.split("\n"):
        bare = without_marker(line)
        if is_statement(bare) and "`" not in bare:
            found.append(bare.rstrip())
        else:
            found += [part for span in spans(line) for part in _statements(span)]
    return "\n".join(found)


def _statements(span: str) -> Iterator[str]:
    for part in span.split("; "):
        if is_statement(part):
            yield part.strip()


def stitched(before: str, after: str) -> str:
    """Join two pieces of a program, of which the second may begin with lines of the first, or repeat all of it."""
    if not before or not after:
        return before or after
    old, new = before.split("\n"), after.split("\n")
    first = new[0].strip()
    for i in range(len(old) - 1, -1, -1):
        last = old[i].strip()
        cut = i == len(old) - 1 and len(last) >= 4 and first.startswith(last)
        if any(map(str.isalnum, last)) and (last == first or cut):
            if sum(map(len, new)) < sum(map(len, old[i:])):
                return before  # a shorter repetition
            indent = old[i][: len(old[i]) - len(old[i].lstrip())]
            return "\n".join([*old[:i], indent + first, *new[1:]])
    return before + "\n" + after


def verbatim(replies: Sequence[str]) -> str:
    """Code as such, in one piece or in several."""
    return functools.reduce(stitched, map(code_in, replies), "")


def _joined(pieces: Iterable[str]) -> str:
    """Join pieces of one text, of which each may begin with the end of the one before, or with all of the text."""
    whole = ""
    for piece in pieces:
        if whole and piece.startswith(whole[:AGAIN]):
            whole = max(whole, piece, key=len)
            continue
        overlap = next((n for n in range(min(80, len(whole), len(piece)), 5, -1) if whole.endswith(piece[:n])), 0)
        whole += piece[overlap:]
    return whole


def _texts(replies: Sequence[str]) -> str:
    """The replies as one text, without fences."""
    blocks = [(reply, fenced(reply)) for reply in replies]
    return _joined(reply.strip() if block is None else block for reply, block in blocks)


def from_base64(replies: Sequence[str]) -> str:
    """Base64 in pieces: of one text that was cut, or each piece encoded by itself."""
    runs = ["".join(_BASE64_RUN.findall(reply.replace("\n", ""))) for reply in replies]
    runs = [run for run in runs if run and not run.isalpha()]
    whole = _joined(runs)
    joined = _decoded(whole) if "=" not in whole.rstrip("=") else ""
    return joined or _joined(map(_decoded, runs))


def _decoded(text: str) -> str:
    text = text.rstrip("=")
    text = text[: len(text) - (len(text) % 4 == 1)]
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4)).decode("utf-8", "ignore")
    except (binascii.Error, ValueError):
        return ""
    readable = sum(c.isprintable() or c in "\n\t" for c in decoded)
    return decoded if decoded and readable == len(decoded) else ""


def from_tree(replies: Sequence[str]) -> str:
    """The JSON syntax tree that `attacks.toml` describes; brackets that are missing at its end are added."""
    return tree_in(_texts(replies))


def _lines(replies: Sequence[str]) -> list[str]:
    """The lines of the replies, those of the fences in a reply that has some."""
    blocks = ((reply, fenced(reply)) for reply in replies)
    text = functools.reduce(stitched, (reply if block is None else block for reply, block in blocks), "")
    return [line for line in text.split("\n") if line.strip()]


def from_javascript(replies: Sequence[str]) -> str:
    """JavaScript in fences, in one piece or in several."""
    return javascript_in(functools.reduce(stitched, (fenced(reply) or "" for reply in replies), ""))


def from_steps(replies: Sequence[str]) -> str:
    """Numbered steps in words, with the expressions in backticks, as `attacks.toml` describes them."""
    return steps_in("\n".join(_lines(replies)))


def statements_in(program: str) -> int:
    """Return how many lines of a program are statements."""
    return sum(map(is_statement, program.split("\n")))


def arranged(program: str, signature: str) -> str:
    """Return the function: the program under its signature if it has none, with blanks before its lines if it has none.

    Without blanks a block ends after return, raise, break, continue and pass, and before else, elif, except, finally.
    """
    lines = [line.rstrip() for line in program.replace("\t", INDENT).split("\n") if line.strip()]
    name = signature[4:].partition("(")[0].strip()
    start = next((i + 1 for i, line in enumerate(lines) if _defines(line, name)), 0)
    before, body = lines[:start], lines[start:]
    blanks = list(map(_blanks, body))
    if len(set(blanks)) < 2 and any(line.endswith(":") for line in body):
        body = list(_indented([line.strip() for line in body]))
    elif before and any(blanks):
        return "\n".join(lines)
    elif body:
        least = min(blanks[1:], default=0)
        if blanks[0] < least and (not body[0].endswith(":") or blanks[1] > least):
            body[0] = " " * least + body[0].lstrip()  # its blanks were lost where the reply was trimmed
        least = min(map(_blanks, body))
        body = [INDENT + line[least:] for line in body]
    return "\n".join([*(before or [signature + ":"]), *body])


def _blanks(line: str) -> int:
    return len(line) - len(line.lstrip())


def _defines(line: str, name: str) -> bool:
    head, _, rest = line.strip().partition(" ")
    return head == "def" and rest.partition("(")[0].strip() == name


def _indented(lines: Sequence[str]) -> Iterator[str]:
    level, left = 1, False
    for line in lines:
        head = line.split()[0].rstrip(":")
        if head in ("else", "elif", "except", "finally") and line.endswith(":") and not left:
            level = max(level - 1, 1)
        yield INDENT * level + line
        left = head in _LEAVES
        level = level + 1 if line.endswith(":") else max(level - left, 1)
