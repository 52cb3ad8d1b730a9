"""Programs in other notations: a syntax tree in JSON, numbered steps with expressions in backticks, JavaScript.

They are written as Python again, in time proportional to the text; nothing is executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

INDENT = "    "
DEEPEST = 40
"""Levels of blocks that are read."""
STARTS = 8
"""Brackets at which a tree may begin: a fragment of a longer one begins in its middle."""
LEAST_ANSWERS = 24
"""Answers in a row, yes or no, from which a reply spells out something."""


def are_answers(text: str) -> bool:
    """Return whether a text is nothing but many answers yes and no, as one letter each or in words.

    So many are no reply to a question: they are the bits of a text.
    """
    letters = text.lower().replace("yes", "y").replace("no", "n")
    answers = [letter for letter in letters if letter.isalnum()]
    return len(answers) >= LEAST_ANSWERS and {"y", "n"} <= set(answers) <= {"y", "n", "e"}


def tree_in(text: str) -> str:
    """Return the statements of a JSON array such as `["set", "x", "1"]` or `["if", "x > 0", [...], [...]]`, or of a
    list of them; brackets that are missing at its end are added. Empty without one."""
    start = -1
    for _ in range(STARTS):
        start = text.find("[", start + 1)
        if start < 0:
            break
        try:
            tree = json.loads(closed(text[start:].replace("```", "")), strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(tree, list) and tree and isinstance(tree[0], str):
            tree = [tree]
        if program := "\n".join(_block(tree, 0)):
            return program
    return ""


def closed(text: str) -> str:
    """Return the longest beginning of a JSON array that ends after a value, with the brackets that it leaves open."""
    stack: list[str] = []
    quoted = escaped = False
    end = depth = 0
    for i, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
            done = not quoted
        elif character == '"':
            quoted, done = True, False
        elif character in "[{":
            stack.append("]" if character == "[" else "}")
            done = False
        elif character in "]}":
            if not stack or stack[-1] != character:
                break
            stack.pop()
            done = True
        else:
            done = False
        if done:
            end, depth = i + 1, len(stack)
            if not stack:
                break
    return text[:end] + "".join(reversed(stack[:depth]))  # after the last value only brackets were opened


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


def spans(line: str) -> list[str]:
    """Return what is in single backticks in a line."""
    parts = line.split("`")
    return [part.strip() for part in parts[1::2] if part.strip()] if len(parts) > 2 else []


def steps_in(text: str) -> str:
    """Numbered steps in words, with the expressions in backticks: 2.1. If `C`: / Set `x` to `E`. / Return `E`."""
    lines: list[str] = []
    for line in text.split("\n"):
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


def javascript_in(source: str) -> str:
    """Return a program in JavaScript as Python, the function's own line left out; empty where it is none."""
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
            return f"{'while' if text.startswith('while') else 'if'} {inside}:" + ("" if opens else " " + _tail(text))
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


def _tail(text: str) -> str:
    """Return the statement after the condition of an `if` without a brace."""
    return text[text.rfind(")") + 1 :].strip() or "pass"
