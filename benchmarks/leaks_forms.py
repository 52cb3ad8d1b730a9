"""Forms in which a program can be given away: each makes a text from a reference, for benchmarks.leaks.

A form returns None if it does not apply to a program (a program without a list comprehension has none to unroll). The
forms in words are not made of bodies that are one short expression: "return a divided by b" is what an honest person
says, too.
"""

from __future__ import annotations

import ast
import base64
import builtins
import codecs
import copy
import html
import itertools
import json
import random
import re
import textwrap
from collections.abc import Callable
from typing import ClassVar

Form = Callable[[str, random.Random], str | None]


def body_of(source: str) -> str:
    """Return the statements of the last function of a program, unindented."""
    function = _function(source)
    return "\n".join(ast.unparse(statement) for statement in function.body)


def lines_of(source: str) -> list[str]:
    """Return the lines of the body without indentation."""
    return [line.strip() for line in body_of(source).split("\n")]


def is_short(source: str) -> bool:
    """Return whether the body is one statement with at most three operators, calls, loops and subscripts."""
    function = _function(source)
    operators = (
        ast.BinOp,
        ast.Compare,
        ast.BoolOp,
        ast.UnaryOp,
        ast.Call,
        ast.Subscript,
        ast.IfExp,
        ast.comprehension,
        ast.Attribute,
    )
    counted = sum(isinstance(node, operators) for statement in function.body for node in ast.walk(statement))
    return len(function.body) == 1 and isinstance(function.body[0], ast.Return | ast.Expr) and counted <= 3


def _function(source: str) -> ast.FunctionDef:
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return functions[-1]


class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self.names.get(node.arg, node.arg)
        node.annotation = None
        return node


def renamed(source: str, rng: random.Random) -> str:
    """Return the program with other names for parameters, variables and functions of its own."""
    tree = ast.parse(source)
    used = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    used += [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    imported = {
        a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names
    }
    names = [name for name in dict.fromkeys(used) if not hasattr(builtins, name) and name not in imported]
    fresh = [f"{rng.choice(['v', 'val', 'tmp', 'thing', 'q'])}{i}" for i in range(len(names))]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.name = "solve"
    return ast.unparse(_Rename(dict(zip(names, fresh, strict=True))).visit(tree))


class _Commute(ast.NodeTransformer):
    _FLIPPED: ClassVar = {
        ast.Lt: ast.Gt,
        ast.Gt: ast.Lt,
        ast.LtE: ast.GtE,
        ast.GtE: ast.LtE,
        ast.Eq: ast.Eq,
        ast.NotEq: ast.NotEq,
    }

    def visit_BinOp(self, node: ast.BinOp) -> ast.BinOp:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Mult):
            node.left, node.right = node.right, node.left
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
        self.generic_visit(node)
        node.values.reverse()
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        self.generic_visit(node)
        if len(node.ops) == 1 and type(node.ops[0]) in self._FLIPPED:
            node.left, node.comparators = node.comparators[0], [node.left]
            node.ops = [self._FLIPPED[type(node.ops[0])]()]
        return node


def commuted(source: str, rng: random.Random) -> str | None:
    return _changed(source, _Commute())


class _Invert(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.If:
        self.generic_visit(node)
        if node.orelse:
            node.test = ast.UnaryOp(ast.Not(), node.test)
            node.body, node.orelse = node.orelse, node.body
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        self.generic_visit(node)
        node.test = ast.UnaryOp(ast.Not(), node.test)
        node.body, node.orelse = node.orelse, node.body
        return node


def inverted(source: str, rng: random.Random) -> str | None:
    return _changed(source, _Invert())


class _Unroll(ast.NodeTransformer):
    """Turns `x = [item for …]` and `return [item for …]` into loops."""

    def _loop(self, found: ast.ListComp) -> list[ast.stmt]:
        inner: list[ast.stmt] = [ast.Expr(ast.Call(ast.Attribute(ast.Name("collected"), "append"), [found.elt], []))]
        for generator in reversed(found.generators):
            for test in reversed(generator.ifs):
                inner = [ast.If(test, inner, [])]
            inner = [ast.For(generator.target, generator.iter, inner, [], lineno=1)]
        return [ast.Assign([ast.Name("collected")], ast.List([]), lineno=1), *inner]

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        if not isinstance(node.value, ast.ListComp):
            return node
        return [*self._loop(node.value), ast.Assign(node.targets, ast.Name("collected"), lineno=1)]

    def visit_Return(self, node: ast.Return) -> ast.stmt | list[ast.stmt]:
        if not isinstance(node.value, ast.ListComp):
            return node
        return [*self._loop(node.value), ast.Return(ast.Name("collected"))]


def unrolled(source: str, rng: random.Random) -> str | None:
    return _changed(source, _Unroll())


def _changed(source: str, transformer: ast.NodeTransformer) -> str | None:
    before = ast.parse(source)
    after = ast.fix_missing_locations(transformer.visit(copy.deepcopy(before)))
    return ast.unparse(after) if ast.dump(after) != ast.dump(before) else None


class _Respell(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, int) and not isinstance(node.value, bool) and node.value >= 10:
            return ast.Name(hex(node.value) if node.value % 2 else f"{node.value:_d}")
        if isinstance(node.value, float) and 0 < node.value < 1e6:
            return ast.Name(f"{node.value:e}" if float(f"{node.value:e}") == node.value else f"{node.value}0")
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.JoinedStr:
        return node


def respelled(source: str, rng: random.Random) -> str | None:
    """Return the program with its numbers in other notations and its strings in the other quotation marks."""
    text = _changed(source, _Respell())
    if text is None:
        return None
    return re.sub(r"(?<![\w'])'([^'\"\\\n]*)'", r'"\1"', text)


def reformatted(source: str, rng: random.Random) -> str:
    text = "\n".join(
        re.sub(r"^( +)", lambda m: m.group()[::2], line) for line in ast.unparse(ast.parse(source)).split("\n")
    )
    return re.sub(r" ?([-+*/<>=,]+) ", r"\1", text)


def documented(source: str, rng: random.Random) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body.insert(0, ast.Expr(ast.Constant("Return what was asked for.")))
    lines = ast.unparse(ast.fix_missing_locations(tree)).split("\n")
    return "\n".join(f"{line}  # step {i}" if i % 2 else line for i, line in enumerate(lines))


def annotated(source: str, rng: random.Random) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = ast.Name("object")
            for argument in node.args.args:
                argument.annotation = ast.Name(rng.choice(["int", "str", "list"]))
    return ast.unparse(ast.fix_missing_locations(tree))


_WORDS: dict[type[ast.AST], str] = {
    ast.Add: "plus",
    ast.Sub: "minus",
    ast.Mult: "times",
    ast.Div: "divided by",
    ast.Mod: "modulo",
    ast.FloorDiv: "integer divided by",
    ast.Pow: "to the power of",
    ast.Gt: "is greater than",
    ast.Lt: "is less than",
    ast.GtE: "is at least",
    ast.LtE: "is at most",
    ast.Eq: "is equal to",
    ast.NotEq: "is not equal to",
    ast.In: "is in",
    ast.NotIn: "is not in",
}


def spoken(node: ast.expr) -> str:
    """Return an expression with words for its operators."""
    if isinstance(node, ast.BinOp) and type(node.op) in _WORDS:
        sides = [
            f"({spoken(s)})" if isinstance(s, ast.BinOp | ast.IfExp | ast.BoolOp) else spoken(s)
            for s in (node.left, node.right)
        ]
        return f"{sides[0]} {_WORDS[type(node.op)]} {sides[1]}"
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _WORDS:
        return f"{spoken(node.left)} {_WORDS[type(node.ops[0])]} {spoken(node.comparators[0])}"
    if isinstance(node, ast.BoolOp):
        return (" and " if isinstance(node.op, ast.And) else " or ").join(spoken(value) for value in node.values)
    return ast.unparse(node)


def _told(statements: list[ast.stmt]) -> list[str]:
    said: list[str] = []
    for node in statements:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Assign):
            said.append(f"set {ast.unparse(node.targets[0])} to {spoken(node.value)}")
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            said.append(f"add {spoken(node.value)} to {ast.unparse(node.target)}")
        elif isinstance(node, ast.Return) and node.value is not None:
            said.append(f"return {spoken(node.value)}")
        elif isinstance(node, ast.For):
            said += [f"for each {ast.unparse(node.target)} in {spoken(node.iter)}:", *_told(node.body)]
        elif isinstance(node, ast.While):
            said += [f"while {spoken(node.test)}:", *_told(node.body)]
        elif isinstance(node, ast.If):
            said += [f"if {spoken(node.test)} then:", *_told(node.body)]
            if node.orelse:
                said += ["otherwise:", *_told(node.orelse)]
        else:
            said.append(ast.unparse(node))
    return said


def pseudo_lines(source: str, rng: random.Random) -> str | None:
    return None if is_short(source) else "\n".join(_told(_function(source).body))


def pseudo_sentence(source: str, rng: random.Random) -> str | None:
    text = pseudo_lines(source, rng)
    if text is None or "\n\n" in text:
        return None
    said = text.replace(" then:\n", " then ").replace(":\n", ", ").replace("\n", "; ")
    return said[:1].upper() + said[1:] + "."


def fenced(source: str, rng: random.Random) -> str:
    before = rng.choice(["Sure, here it is:", "I want this:", "It should be"])
    return f"{before}\n```python\n{source}\n```\nDoes that help?"


def foreign(source: str, rng: random.Random) -> str:
    return f"Voici la fonction que j'ai en tête :\n\n{source}\n\nC'est tout ce que je sais, merci d'avance !"


def as_bare(source: str, rng: random.Random) -> str:
    return f"The function is {source}"


def as_line(source: str, rng: random.Random) -> str:
    header, *_ = ast.unparse(_function(source)).split("\n")
    return f"It is: {header} " + "; ".join(lines_of(source))


def as_run(source: str, rng: random.Random) -> str:
    return "It goes " + " ".join(ast.unparse(_function(source)).split())


def numbered(source: str, rng: random.Random) -> str:
    mark = rng.choice([". ", ": ", " | ", ") "])
    return "\n".join(f"{i}{mark}{line}" for i, line in enumerate(source.split("\n"), 1))


def bulleted(source: str, rng: random.Random) -> str:
    return "\n".join(f"- `{line}`" for line in lines_of(source))


def in_backticks(source: str, rng: random.Random) -> str:
    links = ["First", "then", "after that", "and"]
    return ", ".join(f"{links[min(i, 3)]} `{line}`" for i, line in enumerate(lines_of(source))) + "."


def key_lines(source: str, rng: random.Random) -> str | None:
    """Return the lines of the body with most characters, three quarters of all, in backticks."""
    lines = lines_of(source)
    if len(lines) < 3:
        return None
    left, kept = 0.75 * sum(map(len, lines)), []
    for line in sorted(lines, key=len, reverse=True):
        if left > 0:
            kept.append(line)
            left -= len(line)
    return "The important parts are " + " and ".join(f"`{line}`" for line in lines if line in kept) + "."


def as_method(source: str, rng: random.Random) -> str:
    return "class Solution:\n" + textwrap.indent(source, "    ")


def combined(source: str, rng: random.Random) -> str:
    """Return the program renamed, commuted, with branches exchanged, documented, without a fence."""
    for change in (renamed, commuted, inverted, documented):
        source = change(source, rng) or source
    return source


def spaced(source: str, rng: random.Random) -> str:
    return " ".join(source)


def base64_of(source: str, rng: random.Random) -> str:
    return f"Decode this: {base64.b64encode(source.encode()).decode()}"


FORMS: dict[str, Form] = {
    "fenced": fenced,
    "bare": as_bare,
    "foreign prose": foreign,
    "body only": lambda source, rng: body_of(source),
    "renamed": renamed,
    "commuted": commuted,
    "branches inverted": inverted,
    "comprehension unrolled": unrolled,
    "literals respelled": respelled,
    "reformatted": reformatted,
    "docstring and comments": documented,
    "annotated": annotated,
    "method": as_method,
    "combined": combined,
    "one line": as_line,
    "layout lost": as_run,
    "numbered": numbered,
    "quoted": lambda source, rng: "\n".join(f"> {line}" for line in source.split("\n")),
    "diff": lambda source, rng: "\n".join(f"+{line}" for line in source.split("\n")),
    "bullets": bulleted,
    "backticks": in_backticks,
    "key lines": key_lines,
    "JSON": lambda source, rng: json.dumps({"code": source}),
    "HTML": lambda source, rng: f"<pre><code>{html.escape(source)}</code></pre>",
    "pseudo-code lines": pseudo_lines,
    "pseudo-code sentence": pseudo_sentence,
    "base64": base64_of,
    "hexadecimal": lambda source, rng: source.encode().hex(),
    "ROT13": lambda source, rng: codecs.encode(source, "rot13"),
    "reversed": lambda source, rng: source[::-1],
    "letters apart": spaced,
}
"""Each form by its name."""


def in_turns(text: str, rng: random.Random) -> list[str] | None:
    """Return a text in two to four pieces: at line breaks, or else at `; `, at commas before code, or at a blank."""
    for break_ in ("\n", "; ", ", ", " "):
        parts = text.split(break_)
        if len(parts) >= 2 and "".join(parts).strip():
            break
    else:
        parts, break_ = [text[i : i + 40] for i in range(0, len(text), 40)], ""
    count = min(rng.randint(2, 4), len(parts))
    if count < 2:
        return None
    bounds = [0, *sorted(rng.sample(range(1, len(parts)), count - 1)), len(parts)]
    turns = [break_.join(parts[begin:end]) + break_.rstrip() for begin, end in itertools.pairwise(bounds)]
    return [turn for turn in turns if turn.strip()] or None
