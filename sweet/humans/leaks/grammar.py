"""Parse one statement of Python at any place of any text, as far as it goes; prose around it does no harm.

This is a recursive descent over tokens that builds normalised nodes (sweet.humans.leaks.tree). It is used instead of
`ast` because text of models is not given to Python's own parser in this process (sweet.sandbox.reader), and because
fragments of programs stand inside sentences, without indentation, or cut off. The depth is limited, nothing is tried
twice at one depth, and so the time is linear for each statement.

Operators are parsed by precedence. What does not fit ends an expression where it begins, so that prose may follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sweet.humans.leaks import tree
from sweet.humans.leaks.tokens import END, Token
from sweet.humans.leaks.tree import NAME, Node, literal, node

Form = Literal["expression", "statement", "header", "definition"]
"""`header`: the first line of `if`, `for`, … up to its colon. `definition`: that of `def` or `class`."""

DEEPEST = 20
"""Expressions inside each other; a deeper one is not parsed."""

_BINARY = {
    "or": 1,
    "and": 2,
    **dict.fromkeys(("<", ">", "<=", ">=", "==", "!=", "<>", "in", "is", "not in", "is not"), 4),
    "|": 5,
    "^": 6,
    "&": 7,
    "<<": 8,
    ">>": 8,
    "+": 9,
    "-": 9,
    **dict.fromkeys(("*", "/", "//", "%", "@"), 10),
    "**": 12,
}
_COMPARISON, _UNARY, _NOT = 4, 11, 3
_WORDS = (
    "if elif else for while def class return in is and or not lambda with as try except finally raise assert import "
    "from pass break continue del global nonlocal yield await async"
)
KEYWORDS = frozenset(_WORDS.split())


class NotParsedError(Exception):
    """There is no expression here."""


_ASSIGNED = frozenset({"+=", "-=", "*=", "/=", "%=", "//=", "**=", ">>=", "<<=", "&=", "|=", "^=", "@="})


@dataclass(frozen=True)
class Parsed:
    """A statement: its form, its node (None without content, as `else:`), and the index of the token after it."""

    form: Form
    node: Node | None
    end: int


class Parser:
    """Parses tokens from `at`, which any position may be, and leaves `at` behind what was parsed."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens, self.at, self.depth = tokens, 0, 0

    def statement(self, start: int) -> Parsed | None:
        """Return the longest statement or expression that begins at a token, or None."""
        self.at, self.depth = start, 0
        try:
            form, root = self._statement()
        except NotParsedError:
            return None
        return Parsed(form, root, self.at)

    # Tokens

    def _peek(self, ahead: int = 0) -> Token:
        index = self.at + ahead
        return self.tokens[index] if index < len(self.tokens) else END

    def _is(self, text: str, ahead: int = 0) -> bool:
        token = self._peek(ahead)
        return token.text == text and token.kind in ("operator", "name")

    def _take(self, text: str) -> bool:
        if not self._is(text):
            return False
        self.at += 1
        return True

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise NotParsedError

    def _name(self) -> str:
        token = self._peek()
        if token.kind != "name" or token.text in KEYWORDS:
            raise NotParsedError
        self.at += 1
        return token.text

    # Expressions

    def _target(self) -> Node:
        """Parse the targets of `for`, up to `in`."""
        parts = [self._binary(_COMPARISON + 1)]
        while self._take(","):
            if self._is("in"):
                break
            parts.append(self._binary(_COMPARISON + 1))
        return parts[0] if len(parts) == 1 else node("tuple", parts)

    def _expressions(self) -> Node:
        """Parse expressions separated by commas: one, or a tuple."""
        parts = [self._starred()]
        while self._is(","):
            before = self.at
            self.at += 1
            try:
                parts.append(self._starred())
            except NotParsedError:
                self.at = before
                break
        return parts[0] if len(parts) == 1 else tree.collection("tuple", parts)

    def _starred(self) -> Node:
        if self._take("*") or self._take("**"):
            return node("starred", [self._binary(5)])
        return self._expression()

    def _expression(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise NotParsedError
        try:
            return self._conditional()
        finally:
            self.depth -= 1

    def _conditional(self) -> Node:
        if self._take("lambda"):
            while not self._is(":"):
                if self._peek().kind == "line":
                    raise NotParsedError
                self.at += 1
            self.at += 1
            return node("return", [self._expression()])
        value = self._binary(1)
        before = self.at
        if self._is("if"):
            self.at += 1
            try:
                condition = self._binary(1)
                self._need("else")
                return tree.conditional(condition, value, self._expression())
            except NotParsedError:
                self.at = before
        return value

    def _operator(self) -> str:
        token = self._peek()
        if token.kind not in ("operator", "name"):
            return ""
        if token.text == "not" and self._is("in", 1):
            return "not in"
        if token.text == "is" and self._is("not", 1):
            return "is not"
        return token.text

    def _binary(self, least: int) -> Node:
        self.depth += 1
        if self.depth > 2 * DEEPEST:
            raise NotParsedError
        try:
            return self._binary_inside(least)
        finally:
            self.depth -= 1

    def _binary_inside(self, least: int) -> Node:
        left = self._unary()
        parts: list[Node] = []  # of a chain of + and -, *, and, or, whose node is built once
        joined = ""
        compared: list[Node] = []
        while (strength := _BINARY.get(operator := self._operator(), 0)) >= least:
            before = self.at
            self.at += 2 if " " in operator else 1
            try:
                # Powers group from the right.
                right = self._binary(strength if operator == "**" else strength + 1)
            except NotParsedError:
                self.at = before
                break
            chain = "+" if operator == "-" else operator
            if parts and chain != joined:
                left, parts = tree.chain(joined, parts), []
            if compared and strength != _COMPARISON:
                left, compared = tree.chain("and", compared), []
            if chain in ("+", "*", "and", "or"):
                parts = parts or [left]
                parts.append(tree.negative(right) if operator == "-" else right)
                joined = chain
            elif strength == _COMPARISON:
                # a < b < c is a < b and b < c.
                compared.append(tree.operation("!=" if operator == "<>" else operator, left, right))
                left = right
            else:
                left = tree.operation(operator, left, right)
        if compared:
            return tree.chain("and", compared)
        return tree.chain(joined, parts) if parts else left

    def _unary(self) -> Node:
        if self._is("not"):
            self.at += 1
            return tree.negation(self._binary(_NOT + 1))
        if self._is("-"):
            self.at += 1
            return tree.negative(self._binary(_UNARY))
        if self._is("+"):
            self.at += 1
            return self._binary(_UNARY)
        if self._is("~"):
            self.at += 1
            return node("~", [self._binary(_UNARY)])
        if self._is("await"):
            self.at += 1
        return self._postfix(self._atom())

    def _postfix(self, value: Node) -> Node:
        callee = self._peek(-1).text
        while True:
            before = self.at
            try:
                if self._is(".") and not self._peek(1).spaced and self._peek(1).kind == "name":
                    self.at += 2
                    value = node("attribute", [value], leaf=self._peek(-1).text)
                    callee = ""
                elif self._is("("):
                    self.at += 1
                    value = tree.called(value, callee, self._arguments())
                    callee = ""
                elif self._is("["):
                    self.at += 1
                    value = node("item", [value, self._index()])
                    callee = ""
                else:
                    return value
            except NotParsedError:
                self.at = before
                return value

    def _arguments(self) -> list[Node]:
        arguments: list[Node] = []
        while not self._take(")"):
            if self._peek().kind == "name" and self._is("=", 1):
                name = self._name()
                self.at += 1
                arguments.append(node("keyword", [self._expression()], leaf=name))
            else:
                argument = self._starred()
                if self._is("for") or self._is("async"):
                    argument = self._comprehension("generator", argument)
                arguments.append(argument)
            if not self._take(","):
                self._need(")")
                break
        return arguments

    def _index(self) -> Node:
        parts: list[Node] = []
        sliced = False
        while not self._take("]"):
            if self._take(":"):
                sliced = True
                parts.append(node("colon", own_size=0))
            elif not self._take(","):
                parts.append(self._starred())
        if not parts:
            raise NotParsedError
        return node("slice", parts) if sliced or len(parts) > 1 else parts[0]

    def _comprehension(self, kind: str, item: Node) -> Node:
        parts = [item]
        while True:
            self._take("async")
            if self._take("for"):
                target = self._target()
                self._need("in")
                parts.append(node("for", [target, self._binary(1)]))
            elif self._take("if"):
                decided, _ = tree.branch(self._binary(1))
                parts.append(decided)
            else:
                return node(kind, parts)

    def _atom(self) -> Node:
        token = self._peek()
        if token.kind == "number":
            self.at += 1
            return literal(tree.number_of(token.text))
        if token.kind == "string":
            return self._string()
        if token.kind == "name":
            if token.text in KEYWORDS:
                raise NotParsedError
            self.at += 1
            return literal(token.text) if token.text in ("True", "False", "None") else NAME
        if token.kind == "operator" and token.text in "([{":
            self.at += 1
            return self._bracketed({"(": ")", "[": "]", "{": "}"}[token.text])
        if token.text == "." and self._is(".", 1) and self._is(".", 2):
            self.at += 3
            return literal("...")
        raise NotParsedError

    def _string(self) -> Node:
        values, filled = [], False
        while self._peek().kind == "string":
            value, is_filled = tree.string_of(self._peek().text)
            values.append(value)
            filled |= is_filled
            self.at += 1
        value = "".join(values)
        if not filled:
            return literal("s" + value)
        # A string with places to fill in is program: the longer, the more of it.
        return node("filled", leaf=value, own_size=2 + min(len(value) // 60, 6))

    def _bracketed(self, closing: str) -> Node:
        kind = {")": "tuple", "]": "list", "}": "set"}[closing]
        if self._take(closing):
            return node({"}": "dict"}.get(closing, kind))
        if closing == ")" and self._take("yield"):
            value = node("yield", [self._expressions()])
            self._need(closing)
            return value
        items = [self._item(closing)]
        if closing == "}" and items[0].kind == "pair":
            kind = "dict"
        if self._is("for") or self._is("async"):
            value = self._comprehension("generator" if kind in ("tuple", "list") else kind, items[0])
            self._need(closing)
            return value
        several = False
        while self._take(","):
            several = True
            if self._is(closing):
                break
            items.append(self._item(closing))
        self._need(closing)
        if closing == ")" and not several:
            return items[0]
        return tree.collection(kind, items)

    def _item(self, closing: str) -> Node:
        first = self._starred()
        if closing == "}" and self._take(":"):
            return node("pair", [first, self._expression()], own_size=0)
        if self._take(":="):
            return self._expression()
        return first

    # Statements

    def _statement(self) -> tuple[Form, Node | None]:
        word = self._peek().text if self._peek().kind == "name" else ""
        if word == "async" and self._peek(1).text in ("def", "for", "with"):
            self.at += 1
            word = self._peek().text
        if word in ("def", "class"):
            return self._definition()
        if word in ("if", "elif", "while"):
            self.at += 1
            condition = self._expression()
            self._need(":")
            decided, _ = tree.branch(condition)
            return "header", node("while", decided.children) if word == "while" else decided
        if word in ("else", "try", "finally"):
            if word == "else" and self._is("if", 1):
                self.at += 1
                return self._statement()
            self.at += 1
            self._need(":")
            return "header", None
        if word == "for":
            self.at += 1
            loop = self._for()
            self._need(":")
            return "header", loop
        if word in ("with", "except"):
            return self._clause(word)
        if word in ("return", "raise", "assert", "del", "yield"):
            self.at += 1
            try:
                return "statement", node(word, [self._expressions()])
            except NotParsedError:
                return "statement", node(word)
        if word in ("pass", "break", "continue"):
            self.at += 1
            return "statement", node(word)
        if word in ("import", "from"):
            return self._import()
        return self._simple()

    def _definition(self) -> tuple[Form, Node | None]:
        word = self._peek().text
        self.at += 1
        self._name()
        if self._is("("):
            self._skip_brackets()
        elif word == "def":
            raise NotParsedError
        if self._take("->"):
            self._expression()
        self._need(":")
        return "definition", None

    def _skip_brackets(self) -> None:
        depth = 0
        while self.at < len(self.tokens):
            token = self._peek()
            depth += token.kind == "operator" and token.text in "([{"
            depth -= token.kind == "operator" and token.text in ")]}"
            self.at += 1
            if depth == 0:
                return
        raise NotParsedError

    def _clause(self, word: str) -> tuple[Form, Node | None]:
        self.at += 1
        parts: list[Node] = []
        while not self._take(":"):
            if parts:
                self._need("," if word == "with" else ":")
            parts.append(self._expression())
            if self._take("as"):
                self._name()
        return "header", node(word, parts) if parts else None

    def _import(self) -> tuple[Form, Node | None]:
        first = self._peek().text
        self.at += 1
        names = [self._name()]
        while self._is(".") or self._is(",") or self._is("as") or (first == "from" and self._is("import")):
            self.at += 1
            names.append(self._name())
        if first == "from" and len(names) < 2:
            raise NotParsedError
        return "statement", node("import", leaf=names[0], own_size=2)

    def _simple(self) -> tuple[Form, Node | None]:
        first = self._expressions()
        operator = self._peek()
        if operator.kind != "operator":
            return "expression", first
        before = self.at
        if operator.text in _ASSIGNED:
            self.at += 1
            try:
                value = self._expressions()
            except NotParsedError:
                self.at = before
                return "expression", first
            return "statement", tree.assignment(first, tree.operation(operator.text[:-1], first, value))
        targets, value = [], first
        try:
            if operator.text == ":" and first.kind in ("name", "attribute"):
                self.at += 1
                self._expression()
                if not self._is("="):
                    raise NotParsedError
            while self._take("=") or self._take(":="):
                targets.append(value)
                value = self._expressions()
                before = self.at
        except NotParsedError:
            self.at = before
            if not targets or value is first:
                return "expression", first
        if not targets:
            return "expression", first
        return "statement", tree.assignment(targets[-1], value)

    def _for(self) -> Node:
        target = self._target()
        self._need("in")
        return node("for", [target, self._expressions()])
