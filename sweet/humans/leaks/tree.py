"""Normalised syntax trees: programs that differ only in names, order or spelling have nodes with the same key.

The key of a node is a hash of its kind and of its children's keys. Names of variables, parameters and the program's
own functions are all one key; names of builtins that are called, attributes, keywords of calls and literals keep
theirs. Operands of commutative operators are sorted, chains of one operator are flat, `a - b` is a sum with a negative
part, and `a > b` is `b < a`. A condition and its negation have one key where the branches can be exchanged. Literals
count by their value, and a collection of literals is one leaf, because its items are facts rather than program.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_NAMES = (
    "abs all any ascii bin bool bytes callable chr dict divmod enumerate filter float format frozenset getattr hasattr "
    "hash hex id input int isinstance issubclass iter len list map max min next oct open ord pow print range repr "
    "reversed round set setattr slice sorted str sum super tuple type zip Exception ValueError TypeError KeyError "
    "IndexError ZeroDivisionError"
)
BUILTINS = frozenset(_NAMES.split())
_COMMUTATIVE = frozenset({"+", "*", "&", "|", "^", "and", "or", "==", "!="})
_FLIPPED = {">": "<", ">=": "<="}
_NEGATED = {
    "==": "!=",
    "!=": "==",
    "in": "not in",
    "not in": "in",
    "is": "is not",
    "is not": "is",
    "and": "or",
    "or": "and",
}

_PREFIXED = re.compile(r"([A-Za-z]*)(\"\"\"|'''|\"|')")
_FILLED = re.compile(r"\{[^{}]*\}")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a normalised tree.

    Attributes:
        key: equal for equal trees.
        size: operators, calls, names and literals in the tree.
        informative: whether it has a literal, an attribute or a builtin, and not only names and operators.
    """

    kind: str
    key: bytes
    size: int
    informative: bool
    children: tuple[Node, ...] = ()

    def walk(self) -> Iterator[Node]:
        """Yield the node and all nodes below it."""
        waiting = [self]
        while waiting:
            current = waiting.pop()
            yield current
            waiting.extend(current.children)


def node(
    kind: str, children: Sequence[Node] = (), leaf: str = "", *, own_size: int = 1, informative: bool | None = None
) -> Node:
    """Return a node of a kind; `leaf` distinguishes it besides its children, `own_size` is its own part of the size."""
    if informative is None:
        informative = bool(leaf) or any(child.informative for child in children)
    digest = hashlib.blake2b(digest_size=12)
    for part in (kind.encode(), leaf.encode("utf-8", "replace")):
        digest.update(b"%d:" % len(part) + part)
    for child in children:
        digest.update(child.key)
    return Node(kind, digest.digest(), own_size + sum(child.size for child in children), informative, tuple(children))


NAME = node("name")
"""Every name of a variable."""


@functools.lru_cache(maxsize=4096)
def literal(value: str) -> Node:
    """Return the node of a literal, from the canonical spelling of its value."""
    return node("literal", leaf=value, informative=value not in ("n0", "n1", "True", "False", "None"))


def collection(kind: str, items: Sequence[Node]) -> Node:
    """Return a list, tuple, set or dictionary. One of literals is a leaf."""
    if items and all(item.kind in ("literal", "facts") for child in items for item in (child.children or (child,))):
        joined = b"".join(sorted(item.key for item in items)).hex()
        return node("facts", leaf=f"{kind} {joined}", own_size=2)
    return node(kind, items)


def chain(operator: str, parts: Sequence[Node]) -> Node:
    """Return the node of operands joined by `+`, `*`, `and` or `or`."""
    if len(parts) == 1:
        return parts[0]
    return _sorted(operator, [part for side in parts for part in (side.children if side.kind == operator else (side,))])


def operation(operator: str, left: Node, right: Node) -> Node:
    """Return the normalised node of a binary operator or of a comparison."""
    if operator == "-":
        return chain("+", [left, negative(right)])
    if operator in ("+", "*", "and", "or"):
        return chain(operator, [left, right])
    if operator in _FLIPPED:
        return operation(_FLIPPED[operator], right, left)
    return _sorted(operator, [left, right]) if operator in _COMMUTATIVE else node(operator, [left, right])


def _sorted(operator: str, parts: Sequence[Node]) -> Node:
    return node(operator, sorted(parts, key=lambda part: part.key), own_size=len(parts) - 1)


def negative(operand: Node) -> Node:
    """Return `-operand`."""
    if operand.kind == "negative":
        return operand.children[0]
    return node("negative", [operand], own_size=0)


def negation(condition: Node) -> Node:
    """Return `not condition`, with the `not` moved into comparisons."""
    if condition.kind == "not":
        return condition.children[0]
    if condition.kind in ("<", "<="):
        left, right = condition.children
        return node("<=" if condition.kind == "<" else "<", [right, left])
    if condition.kind in ("and", "or"):
        return _sorted(_NEGATED[condition.kind], [negation(child) for child in condition.children])
    if condition.kind in ("==", "!="):
        return _sorted(_NEGATED[condition.kind], condition.children)
    if condition.kind in _NEGATED:
        return node(_NEGATED[condition.kind], condition.children)
    return node("not", [condition], own_size=0)


def branch(condition: Node) -> tuple[Node, bool]:
    """Return the node of a condition that decides between two branches, and whether the branches are exchanged."""
    other = negation(condition)
    exchanged = other.key < condition.key
    return node("if", [other if exchanged else condition]), exchanged


def conditional(condition: Node, then: Node, otherwise: Node) -> Node:
    """Return `then if condition else otherwise`."""
    decided, exchanged = branch(condition)
    return node("conditional", [decided, *((otherwise, then) if exchanged else (then, otherwise))], own_size=0)


def assignment(target: Node, value: Node) -> Node:
    """Return the node of `target = value`. A literal for a name is a fact, and counts 1."""
    constant = value.kind in ("literal", "facts") or (value.kind == "negative" and value.children[0].kind == "literal")
    if constant and target.kind in ("name", "tuple"):
        return Node("fact", node("assign", [target, value]).key, 1, value.informative)
    return node("assign", [target, value])


def called(function: Node, name: str, arguments: Sequence[Node]) -> Node:
    """Return the node of a call; `name` is that of the function, if it is a name."""
    if function.kind == "name":
        builtin = name if name in BUILTINS else ""
        if builtin in ("min", "max"):
            arguments = sorted(arguments, key=lambda argument: argument.key)
        return node("call", arguments, leaf=builtin, own_size=2)
    return node("call", [function, *arguments])


def number_of(text: str) -> str:
    """Return the canonical spelling of a number: equal values have one."""
    plain = text.replace("_", "").lower()
    try:
        if plain[:2] in ("0x", "0b", "0o"):
            return f"n{int(plain, 0)}"
        value = float(plain)
    except ValueError:
        return f"n{plain}"
    return f"n{int(value)}" if value.is_integer() and abs(value) < 1e15 else f"n{value!r}"


def string_of(text: str) -> tuple[str, bool]:
    """Return the value of a string with single blanks for all white space, and whether it has places to fill in."""
    match = _PREFIXED.match(text)
    if match is None:
        return text, False
    quotes = match.group(2)
    inside = text[match.end() : -len(quotes)]
    if "f" in match.group(1).lower():
        return " ".join(_FILLED.sub("{}", _ESCAPED.sub(_character, inside)).split()), True
    return " ".join(_ESCAPED.sub(_character, inside).split()), False


def _character(match: re.Match[str]) -> str:
    return " " if match.group(1) in "nrt\n" else match.group(1)
