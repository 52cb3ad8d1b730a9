"""Puts programs back together from what a human said: code, base64, syntax trees, JavaScript, steps.

Each decoder maps the human's replies, in their order, to lines of Python, or to an empty text where the replies do not
have its form. It works on characters and lines and executes and compiles nothing: the texts are those of a model.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic_core import from_json

from sweet.humans.leaks.grammar import Parser
from sweet.humans.leaks.tokens import tokens_of

INDENT = "    "
DEEPEST = 40
"""Levels of blocks that are read."""
STARTS = 8
"""Brackets at which a tree may begin: a fragment of a longer one begins in its middle."""
LONGEST_LINE = 400
"""A longer line is not taken for code."""
AGAIN = 24
"""Characters with which a piece repeats the text from its beginning."""

_BASE64_RUN = re.compile(r"[A-Za-z0-9+/]{16,}+={0,2}")

_LEAVES = frozenset(("return", "raise", "break", "continue", "pass"))


@functools.lru_cache(maxsize=4096)  # attackers read all replies of a dialogue again after each
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


def spans(line: str) -> list[str]:
    """Return what is in single backticks in a line."""
    parts = line.split("`")
    return [part.strip() for part in parts[1::2] if part.strip()] if len(parts) > 2 else []


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


def _texts(replies: Sequence[str]) -> Iterator[str]:
    """Yield what is in the fences of each reply, or the reply if it has none."""
    for reply in replies:
        block = fenced(reply)
        yield reply.strip() if block is None else block


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
    """Return the statements of a JSON array such as `["set", "x", "1"]` or `["if", "x > 0", [...], [...]]`, or of a
    list of them; brackets that are missing at its end are added. Empty without one."""
    text, start = _joined(_texts(replies)), -1
    for _ in range(STARTS):
        start = text.find("[", start + 1)
        if start < 0:
            break
        try:
            tree = _json(text[start:].replace("```", ""))
        except (ValueError, RecursionError):
            continue
        if isinstance(tree, list) and tree and isinstance(tree[0], str):
            tree = [tree]
        if program := "\n".join(_block(tree, 0)):
            return program
    return ""


def _json(text: str) -> Any:
    """Return the JSON value at the beginning of a text, which may end inside it."""
    try:
        return json.JSONDecoder(strict=False).raw_decode(text)[0]
    except ValueError:
        return from_json(text, allow_partial=True)


def _block(tree: Any, level: int) -> Iterator[str]:
    """Yield the lines of a list of statements."""
    if not isinstance(tree, list) or level > DEEPEST:
        return
    indent = INDENT * level
    for node in tree:
        if not isinstance(node, list) or len(node) < 2 or not isinstance(node[0], str):
            continue
        word, *rest = node
        texts = [" ".join(part.split()) if isinstance(part, str) else "" for part in rest]
        blocks = [part for part in rest if isinstance(part, list)]
        if word == "set" and len(rest) > 1:
            yield f"{indent}{texts[0]} = {texts[1]}"
        elif word in ("return", "do"):
            yield f"{indent}return {texts[0]}" if word == "return" else indent + texts[0]
        elif word in ("if", "while", "for") and blocks:
            yield f"{indent}for {texts[0]} in {texts[1]}:" if word == "for" else f"{indent}{word} {texts[0]}:"
            yield from list(_block(blocks[0], level + 1)) or [indent + INDENT + "pass"]
            if len(blocks) > 1 and blocks[1]:
                yield indent + "else:"
                yield from list(_block(blocks[1], level + 1)) or [indent + INDENT + "pass"]


def from_javascript(replies: Sequence[str]) -> str:
    """Return a program in JavaScript as Python, the function's own line left out; empty where it is none."""
    source = functools.reduce(stitched, (fenced(reply) or "" for reply in replies), "")
    if "{" not in source or ";" not in source:
        return ""
    lines: list[str] = []
    level = 0
    for line in source.split("\n"):
        text = line.strip()
        while text.startswith("}"):
            after = text.lstrip("}")
            level, text = max(level - (len(text) - len(after)), 0), after.lstrip(" ;)")
        if not text or text.startswith(("function ", "export ", "//")):
            continue
        opens = text.endswith("{") and not text.endswith(("= {", "({"))
        written = _python(text.removesuffix("{").rstrip(" ;") if opens else text.rstrip(" ;"), opens)
        lines += [INDENT * min(level, DEEPEST) + written] if written else []
        level += opens
    return "\n".join(lines)


_JAVASCRIPT = (
    *(("===", "=="), ("!==", "!="), ("&&", " and "), ("||", " or "), ("Math.max(", "max("), ("Math.min(", "min(")),
    *(("Math.abs(", "abs("), ("Math.round(", "round("), (".push(", ".append("), (".includes(", ".__contains__(")),
    *(("Math.floor(", "int("), (".toUpperCase(", ".upper("), (".toLowerCase(", ".lower("), (".trim(", ".strip(")),
)
_JAVASCRIPT_WORD = re.compile(r"\b(?:true|false|null|undefined)\b|\b([^\W\d]\w*+)\.length\b|!(?=[\w(])")
_JAVASCRIPT_WORDS = {"true": "True", "false": "False", "null": "None", "undefined": "None", "!": "not "}


def _python(text: str, opens: bool) -> str:
    """Return a line of JavaScript as Python; empty where it is none of the forms that are known."""
    for one, other in _JAVASCRIPT:
        text = text.replace(one, other)
    text = _JAVASCRIPT_WORD.sub(lambda m: f"len({m[1]})" if m[1] else _JAVASCRIPT_WORDS[m[0]], text)
    head, _, rest = text.partition(" ")
    if head in ("let", "const", "var"):
        return rest
    if head in ("if", "while", "for", "else") or text.startswith(("if(", "while(", "for(")):
        inside = text[text.find("(") + 1 : text.rfind(")")].strip()
        if text == "else":
            return "else:"
        if text.startswith("else if"):
            return f"elif {inside}:"
        if not text.startswith("for"):
            after = "" if opens else f" {text[text.rfind(')') + 1 :].strip() or 'pass'}"
            return f"{'while' if text.startswith('while') else 'if'} {inside}:{after}"
        variable, _, items = inside.partition(" of ")
        if items:
            return f"for {variable.split()[-1]} in {items}:" if variable.split() else ""
        start, _, more = inside.partition(";")
        name, _, first = start.removeprefix("let ").removeprefix("var ").partition("=")
        limit = more.partition(";")[0].partition("<")[2]
        return f"for {name.strip()} in range({first.strip()}, {limit.strip()}):" if limit else ""
    if text.endswith("++"):
        return f"{text[:-2]} += 1"
    return text if ("=" in text or "(" in text or text.startswith("return")) else ""


def from_steps(replies: Sequence[str]) -> str:
    """Numbered steps in words, with the expressions in backticks: 2.1. If `C`: / Set `x` to `E`. / Return `E`."""
    lines: list[str] = []
    for line in functools.reduce(stitched, _texts(replies), "").split("\n"):
        number, _, step = line.strip().partition(" ")
        quoted = spans(step)
        if not number.strip(".):")[:1].isdigit():
            continue
        indent = INDENT * (len([part for part in number.strip(".):").split(".") if part]) - 1)
        words = step.lower()
        if not quoted:
            lines += [f"{indent}else:"] if lines and words.startswith(("otherwise", "else")) else []
        elif words.startswith(("return", "it returns", "give back")):
            lines.append(f"{indent}return {quoted[0]}")
        elif words.startswith(("otherwise, if", "else if", "elif")):
            lines.append(f"{indent}elif {quoted[0]}:")
        elif words.startswith("if"):
            lines.append(f"{indent}if {quoted[0]}:")
        elif words.startswith("while"):
            lines.append(f"{indent}while {quoted[0]}:")
        elif words.startswith("for") and len(quoted) > 1:
            lines.append(f"{indent}for {quoted[0]} in {quoted[1]}:")
        elif words.startswith(("add", "append")) and len(quoted) > 1:
            appended = words.startswith("append")
            lines.append(indent + (f"{quoted[1]}.append({quoted[0]})" if appended else f"{quoted[1]} += {quoted[0]}"))
        elif words.startswith(("set", "let", "assign", "store")) and len(quoted) > 1:
            pair = quoted if words.startswith(("set", "let")) else quoted[::-1]
            lines.append(f"{indent}{pair[0]} = {pair[1]}")
        elif words.startswith(("otherwise", "else")):
            lines.append(f"{indent}else:")
        elif words.startswith(("do", "call", "run", "execute")):
            lines.append(indent + quoted[0])
    return "\n".join(lines)


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
