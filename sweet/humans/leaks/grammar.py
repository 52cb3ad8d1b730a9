"""Parse one statement of Python at any place of any text, as far as it goes; prose around it does no harm.

This is a recursive descent over tokens that builds normalised nodes (sweet.humans.leaks.tree). It is used instead of
`ast` because text of models is not given to Python's own parser in this process (sweet.tasks.code.reader), and because
fragments of programs stand inside sentences, without indentation, or cut off. The depth is limited, nothing is tried
twice at one depth, and so the time is linear for each statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sweet.humans.leaks import tree
from sweet.humans.leaks.expressions import ExpressionParser, NotParsedError
from sweet.humans.leaks.tree import Node, node

Form = Literal["expression", "statement", "header", "definition"]
"""`header`: the first line of `if`, `for`, … up to its colon. `definition`: that of `def` or `class`."""

_ASSIGNED = frozenset({"+=", "-=", "*=", "/=", "%=", "//=", "**=", ">>=", "<<=", "&=", "|=", "^=", "@="})


@dataclass(frozen=True)
class Parsed:
    """A statement: its form, its node (None without content, as `else:`), and the tokens from `start` up to `end`."""

    form: Form
    node: Node | None
    start: int
    end: int


class Parser(ExpressionParser):
    """Parses tokens from any position."""

    def statement(self, start: int) -> Parsed | None:
        """Return the longest statement or expression that begins at a token, or None."""
        self.at, self.depth = start, 0
        try:
            form, found = self._statement()
        except NotParsedError:
            return None
        return Parsed(form, found, start, self.at)

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
            found = self._for()
            self._need(":")
            return "header", found
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
        return "statement", node("import", leaf=names[0], own=2)

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
            return "statement", assignment(first, tree.operation(operator.text[:-1], first, value))
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
        return "statement", assignment(targets[-1], value)

    def _for(self) -> Node:
        target = self._target()
        self._need("in")
        return node("for", [target, self._expressions()])


def assignment(target: Node, value: Node) -> Node:
    """Return the node of `target = value`. A literal for a name is a fact, and counts 1."""
    constant = value.kind in ("literal", "facts") or (value.kind == "negative" and value.children[0].kind == "literal")
    if constant and target.kind in ("name", "tuple"):
        return Node("fact", node("assign", [target, value]).key, 1, value.informative)
    return node("assign", [target, value])
