"""Programs in JavaScript, written as Python: assignments, conditions, loops and the usual methods, line by line."""

from __future__ import annotations

import re

from sweet.humans.leaks.notations import DEEPEST, INDENT


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
