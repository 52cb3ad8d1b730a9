"""Translates small Python functions for the forms of leaks: into languages, steps, tokens and trees.

A language is a table of templates (`leak_texts/languages_*.txt`). A line `== name < base` begins one, which has what it
lacks from the base; entries are `key: template` with `$field`s, apart by ` § ` or line ends; a backslash and n or s is
a line end or a space, and `!` means that it has no such thing. `op.X` and `fn.x` name operators and functions.
"""

from __future__ import annotations

import ast
import io
import random
import tokenize
from collections.abc import Callable, Sequence
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

Form = Callable[[str, random.Random], list[str] | None]
"""A form of a leak: the replies of a human that give a source away, or None where it cannot render the source."""
Table = dict[str, str]
LONGEST = 6000
"""Characters of a translation at most: a person would not send more."""


class Untranslatable(Exception):
    """A language has no way to say something."""


def tables(text: str, known: dict[str, Table] | None = None) -> dict[str, Table]:
    """Return the tables of a text by name; `known` are the bases that it may name beside its own."""
    found: dict[str, Table] = {}
    for part in f"\n{text}".split("\n== ")[1:]:
        head, _, body = part.partition("\n")
        name, _, base = (word.strip() for word in head.partition("<"))
        entries = (entry.partition(":") for entry in body.replace("\n", " § ").split(" § ") if entry.strip())
        own = {key.strip(): value.strip().replace("\\n", "\n").replace("\\s", " ") for key, _, value in entries}
        found[name] = {**{**(known or {}), **found}.get(base, {}), **own}
    return found


TEXTS = Path(__file__).parent / "leak_texts"
BASE = tables((TEXTS / "languages_base.txt").read_text())


def languages(part: str) -> dict[str, dict[str, Table]]:
    """Return the languages of a file by class (lines `#### class`) and name; a base may be of an earlier class."""
    found: dict[str, dict[str, Table]] = {}
    for text in (TEXTS / f"languages_{part}.txt").read_text().split("#### ")[1:]:
        kind, _, body = text.partition("\n")
        known = {name: table for tables_of in found.values() for name, table in tables_of.items()}
        found[kind] = tables(body, {**BASE, **known})
    return found


def functions(source: str) -> list[ast.FunctionDef]:
    """Return the functions of a source, without their docstrings."""
    found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    for node in found:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1:
            del node.body[0]
    if not found:
        raise Untranslatable("no function")
    return found


class Translator:
    """Renders functions by a table of templates."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __call__(self, source: str) -> str:
        """Return the translation.

        Raises:
            Untranslatable: the language cannot say it, or it is longer than `LONGEST`.
        """
        text = "\n".join(self.function(node) for node in functions(source))
        if len(text) > LONGEST:
            raise Untranslatable("too long")
        return text

    def fill(self, key: str, /, **fields: str) -> str:
        template = self.table.get(key, "!")
        if template == "!":
            raise Untranslatable(key)
        return Template(template).substitute(fields)

    def function(self, node: ast.FunctionDef) -> str:
        params = [self.fill("param", id=a.arg, Id=a.arg.capitalize()) for a in node.args.args]
        body = self.say(as_expression(node.body)) if "expression" in self.table else self.block(node.body)
        return self.fill("def", name=node.name, params=self.table["sep"].join(params), body=body)

    def block(self, body: Sequence[ast.stmt]) -> str:
        indent = self.table["indent"]
        said = (self.statement(node) for node in body)
        return self.table["join"].join(f"{indent}{text}".replace("\n", f"\n{indent}") for text in said)

    def statement(self, node: ast.stmt) -> str:
        """Return a statement in the language."""
        match node:
            case ast.If(test, body, orelse):
                said = self.fill("if", test=self.say(test), body=self.block(body))
                return said + (self.fill("else", body=self.block(orelse)) if orelse else self.table["empty"])
            case ast.For(target, iterated, body):
                return self.fill("for", target=self.say(target), iter=self.say(iterated), body=self.block(body))
            case ast.While(test, body):
                return self.fill("while", test=self.say(test), body=self.block(body))
            case ast.Try(body, handlers):
                caught = ((self.say(h.type) if h.type else "", self.block(h.body)) for h in handlers)
                excepts = "".join(self.fill("except", type=kind, body=said) for kind, said in caught)
                return self.fill("try", body=self.block(body)) + excepts
            case ast.AugAssign(target, op, value):
                return self.statement(ast.Assign([target], ast.BinOp(_loaded(target), op, value)))
            case ast.AnnAssign(target, _, value) if value:
                return self.statement(ast.Assign([target], value))
            case ast.Assign([target], value):
                return self.fill("assign", target=self.say(target), value=self.say(value))
            case ast.Return(value) | ast.Expr(value):
                return self.fill(type(node).__name__.lower(), value=self.say(value or ast.Constant(None)))
            case ast.Raise(exc) if exc:
                return self.fill("raise", value=self.say(exc))
            case ast.Break() | ast.Continue() | ast.Pass():
                return self.fill(type(node).__name__.lower())
            case ast.FunctionDef():
                return self.function(node)
        raise Untranslatable(type(node).__name__)

    def op(self, node: ast.AST) -> str:
        return self.fill(f"op.{type(node).__name__}")

    def operand(self, node: ast.expr) -> str:
        grouped = isinstance(node, ast.BinOp | ast.BoolOp | ast.Compare | ast.IfExp)
        return self.fill("group", text=self.say(node)) if grouped else self.say(node)

    def chain(self, op: ast.AST, values: Sequence[str]) -> str:
        left, *rest = values
        for right in rest:
            left = self.fill("bin", left=left, op=self.op(op), right=right)
        return left

    def say(self, node: ast.expr) -> str:
        """Return an expression in the language."""
        match node:
            case ast.Name(name):
                return self.table.get(f"fn.{name}") or self.fill("name", id=name, Id=name.capitalize())
            case ast.Constant(value):
                if value is None or isinstance(value, bool):
                    return self.fill(str(value))
                key = "str" if isinstance(value, str) else "num"
                return self.fill(key, text=repr(value)[1:-1] if key == "str" else repr(value))
            case ast.BinOp(left, op, right):
                return self.chain(op, [self.operand(left), self.operand(right)])
            case ast.BoolOp(op, values):
                return self.chain(op, [self.operand(value) for value in values])
            case ast.Compare(left, ops, rights):
                pairs = zip([left, *rights], ops, rights, strict=False)
                return self.chain(ast.And(), [self.chain(op, [self.operand(a), self.operand(b)]) for a, op, b in pairs])
            case ast.UnaryOp(op, value):
                return self.fill("not" if isinstance(op, ast.Not) else "neg", value=self.operand(value))
            case ast.Call(ast.Name("let"), [target, value, rest]):
                return self.fill("let", target=self.say(target), value=self.say(value), body=self.say(rest))
            case ast.Call(ast.Name("fold"), [acc, target, iterated, value]):
                named = {"acc": acc, "target": target, "iter": iterated, "body": value}
                return self.fill("fold", **{key: self.say(part) for key, part in named.items()})
            case ast.Call(func, args, keywords):
                named_args = [self.fill("keyword", name=k.arg or "", value=self.say(k.value)) for k in keywords]
                said = self.table["sep"].join([*map(self.say, args), *named_args])
                if isinstance(func, ast.Attribute):
                    name = self.table.get(f"fn.{func.attr}", func.attr)
                    return self.fill("method", value=self.operand(func.value), name=name, args=said).replace(", )", ")")
                return self.fill("call", func=self.say(func), args=said)
            case ast.Attribute(value, name):
                return self.fill("attr", value=self.say(value), name=name)
            case ast.Subscript(value, index):
                return self.fill("index", value=self.say(value), index=self.say(index))
            case ast.Slice(lower, upper):
                return self.fill(
                    "slice", lower=self.say(lower) if lower else "", upper=self.say(upper) if upper else ""
                )
            case ast.List(elts) | ast.Tuple(elts) | ast.Set(elts):
                return self.fill(type(node).__name__.lower(), items=self.table["sep"].join(map(self.say, elts)))
            case ast.Dict(keys, values):
                said_pairs = ((self.say(k), self.say(v)) for k, v in zip(keys, values, strict=True) if k)
                items = self.table["sep"].join(self.fill("pair", key=k, value=v) for k, v in said_pairs)
                return self.fill("dict", items=items)
            case ast.IfExp(test, body, orelse):
                return self.fill("choice", test=self.say(test), body=self.say(body), orelse=self.say(orelse))
            case ast.ListComp(elt, [generator]) | ast.GeneratorExp(elt, [generator]) | ast.SetComp(elt, [generator]):
                cond = "".join(self.fill("cond", test=self.say(test)) for test in generator.ifs)
                over = {"target": self.say(generator.target), "iter": self.say(generator.iter)}
                return self.fill("comp", elt=self.say(elt), cond=cond, **over)
            case ast.Lambda(args, body):
                params = self.table["sep"].join(self.fill("param", id=a.arg, Id=a.arg.capitalize()) for a in args.args)
                return self.fill("lambda", params=params, body=self.say(body))
            case ast.Starred(value):
                return self.fill("star", value=self.say(value))
            case ast.JoinedStr(values):
                return self.chain(ast.Add(), [self.say(value) for value in values] or [self.fill("str", text="")])
            case ast.FormattedValue(value, _, spec):
                return self.say(ast.Call(ast.Name("format"), [value, spec], []) if spec else value)
        raise Untranslatable(type(node).__name__)


def _loaded(node: Any) -> ast.expr:
    return ast.parse(ast.unparse(node), mode="eval").body


def _assigned(body: Sequence[ast.stmt]) -> list[str]:
    nodes = (n for statement in body for n in ast.walk(statement))
    assigned = (n for n in nodes if isinstance(n, ast.Assign | ast.AugAssign))
    targets = (n.target if isinstance(n, ast.AugAssign) else n.targets[0] for n in assigned)
    return list(dict.fromkeys(ast.unparse(target) for target in targets))


def as_expression(body: Sequence[ast.stmt], end: ast.expr | None = None) -> ast.expr:
    """Return what statements return as one expression, with calls of `let` and `fold`; `end`: after the last."""
    if not body:
        return end or ast.Constant(None)
    first, *rest = body
    leaves = any(isinstance(node, ast.Return | ast.Raise) for node in ast.walk(first))
    match first:
        case ast.Return(value):
            return value or ast.Constant(None)
        case ast.Raise(exc) if exc:
            return ast.Call(ast.Name("error"), [exc], [])
        case ast.AugAssign(ast.Name() as target, op, value):
            return _let(target.id, ast.BinOp(ast.Name(target.id), op, value), as_expression(rest, end))
        case ast.Assign([ast.Name() as target], value):
            return _let(target.id, value, as_expression(rest, end))
        case ast.If(test, then, orelse) if leaves:
            return ast.IfExp(test, as_expression([*then, *rest], end), as_expression([*orelse, *rest], end))
        case ast.If(test, then, orelse):
            said = as_expression(rest, end)
            for name in reversed(_assigned([first])):
                old = ast.Name(name)
                said = _let(name, ast.IfExp(test, as_expression(then, old), as_expression(orelse, old)), said)
            return said
        case ast.For(ast.Name() as target, iterated, loop) if not leaves and len(_assigned(loop)) == 1:
            acc = ast.Name(_assigned(loop)[0])
            fold = ast.Call(ast.Name("fold"), [acc, target, iterated, as_expression(loop, acc)], [])
            return _let(acc.id, fold, as_expression(rest, end))
    raise Untranslatable(type(first).__name__)


def _let(name: str, value: ast.expr, body: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("let"), [ast.Name(name), value, body], [])


def plain(change: Callable[[str], str]) -> Form:
    """Return the form that changes a source without chance."""
    return lambda source, _: [change(source)]


def translated(table: Table) -> Form:
    """Return the form that says a source in a language."""

    return plain(Translator(table))


class Step(NamedTuple):
    """A statement or a test of a flow chart; `yes` is the next step where there is no test."""

    text: str
    test: bool
    yes: int
    no: int


def steps(source: str, say: Translator) -> list[Step]:
    """Return the function as numbered steps with jumps, from 0; the number after the last one means the end."""
    found: list[Step] = []

    def redirect(start: int, end: int, to: int) -> None:
        for i in range(start, end):
            text, test, yes, no = found[i]
            found[i] = Step(text, test, to if yes == end else yes, to if no == end else no)

    def walk(body: Sequence[ast.stmt]) -> None:
        for node in body:
            here = len(found)
            if isinstance(node, ast.If | ast.While | ast.For):
                test = ast.Compare(node.target, [ast.In()], [node.iter]) if isinstance(node, ast.For) else node.test
                found.append(Step(say.say(test), True, here + 1, 0))
                walk(node.body)
                end = len(found)
                if not isinstance(node, ast.If):
                    redirect(here + 1, end, here)
                elif node.orelse:
                    walk(node.orelse)
                    redirect(here + 1, end, len(found))
                found[here] = found[here]._replace(no=end)
            else:
                found.append(Step(say.statement(node), False, here + 1, 0))

    walk(functions(source)[0].body)
    return found


def words(source: str) -> list[str]:
    """Return the tokens of a source, with `NEWLINE`, `INDENT` and `DEDENT`, without comments."""
    left = {tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER}
    names = {tokenize.NEWLINE: "NEWLINE", tokenize.INDENT: "INDENT", tokenize.DEDENT: "DEDENT"}
    read = tokenize.generate_tokens(io.StringIO(source.strip() + "\n").readline)
    return [names.get(token.type, token.string) for token in read if token.type not in left]


def tree(node: object) -> Any:
    """Return the syntax tree as mappings, lists and scalars, without what is empty."""
    if isinstance(node, ast.AST):
        fields = {name: tree(value) for name, value in ast.iter_fields(node) if name not in {"ctx", "kind"}}
        return {"node": type(node).__name__, **{k: v for k, v in fields.items() if v not in (None, [])}}
    if isinstance(node, list):
        return [tree(item) for item in node]
    return node if isinstance(node, str | int | float | bool | None) else repr(node)


def leaves(data: object, path: str = "") -> list[tuple[str, object]]:
    """Return the scalars of a tree with their paths."""
    if isinstance(data, dict):
        return [leaf for key, value in data.items() for leaf in leaves(value, f"{path}.{key}" if path else str(key))]
    if isinstance(data, list):
        return [leaf for i, value in enumerate(data) for leaf in leaves(value, f"{path}.{i}")]
    return [(path, data)]


def lines_of(source: str) -> list[str]:
    """Return the lines of a source that are not blank."""
    return [line for line in source.strip().splitlines() if line.strip()]
