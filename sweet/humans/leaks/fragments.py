"""Find the fragments of a program in a text, and decide which of them count as source.

The text is scanned from token to token; where a statement or an expression begins, it is parsed as far as it goes. A
fragment is *marked* as code if it fills a line, a pair of backticks or what follows a colon, or follows the first line
of a definition or of a branch. What a person says in conversation does not count: an expression of at most `SHORT`
parts, wherever it stands, and in the middle of a sentence a short `return`, a value for a name or a comparison.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from sweet.humans.leaks.grammar import KEYWORDS, Form, Parser
from sweet.humans.leaks.tokens import END, Token, tokens_of
from sweet.humans.leaks.tree import NAME, Node, node
from sweet.humans.leaks.variants import variants_of

SHORT = 8
"""Operators, names and literals of the longest expression that may be said."""
LEAST_INLINE = 5
"""Parts from which an assignment in the middle of a sentence counts."""
_LEAST_SUBTREE, _LEAST_INFORMATIVE = 5, 3
"""Sizes from which a subtree counts apart from its statement: of any, and of one with a literal or an attribute."""
_COLLECTS = frozenset(node("attribute", [NAME], leaf=name).key for name in ("append", "add", "extend"))
_BEGINS = frozenset("([{-+~")
_ROWS = frozenset({"-", "+", "~", "not"})


@dataclass(frozen=True)
class Fragment:
    """A fragment of a program in a text: its tree, and its place."""

    form: Form
    node: Node | None
    marked: bool
    start: int
    end: int


@dataclass(frozen=True)
class Source:
    """The source in one variant of a text.

    Attributes:
        keys: the keys of the trees that count.
        defines: whether the first line of a function is among it.
    """

    keys: frozenset[bytes]
    defines: bool


def fragments_of(text: str, *, inside: bool = False) -> list[Fragment]:
    """Return the fragments of a program in a text, in order; `inside` says that the text was in quotation marks."""
    tokens = tokens_of(text)
    parser = Parser(tokens)
    fragments: list[Fragment] = []
    at, begins, within = 0, True, False
    while at < len(tokens):
        token = tokens[at]
        if token.kind == "line":
            at, begins, within = at + 1, True, False
            continue
        if _is_word(token, tokens[at + 1] if at + 1 < len(tokens) else END):
            at, begins = at + 1, False
            continue
        parsed = parser.statement(at) if _may_begin(token, tokens[at - 1] if at else None) else None
        if parsed is None or parsed.end <= at:
            begins = token.text in (":", ";")
            at += 1
            continue
        marked = within or (begins and _ends(tokens, parsed.end))
        fragments.append(Fragment(parsed.form, parsed.node, marked, token.start, tokens[parsed.end - 1].end))
        within |= parsed.form in ("definition", "header")
        begins = False
        at = parsed.end
    if not inside:
        for token in tokens:
            if token.kind == "string" and len(token.text) >= 8:
                quoted = fragments_of(token.text.strip("'\"").replace("\\n", "\n"), inside=True)
                fragments += [Fragment(p.form, p.node, p.marked, token.start, token.end) for p in quoted]
    return fragments


def _is_word(token: Token, after: Token) -> bool:
    """Return whether a token is a name that nothing is done with, as most words of prose: such an expression never
    counts, and needs no parser."""
    return (
        token.kind == "name"
        and after.kind in ("name", "line", "other")
        and token.text not in KEYWORDS
        and after.text not in KEYWORDS
    )


def _may_begin(token: Token, before: Token | None) -> bool:
    """Return whether a fragment may begin with a token; one that begins with a row of the same sign has been tried."""
    if before is not None and token.text == before.text and token.text in _ROWS:
        return False
    return token.kind in ("name", "number", "string") or (token.kind == "operator" and token.text in _BEGINS)


def _ends(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a line of code ends before this token; a stop or comma may follow, or the next statement."""
    if at < len(tokens) and tokens[at].text in (".", ",", "!"):
        at += 1
    token = tokens[at] if at < len(tokens) else None
    return token is None or token.kind == "line" or token.text == ";"


def counted(fragments: Sequence[Fragment]) -> list[Fragment]:
    """Return the fragments that count as source."""
    statements = any(_counts(fragment) and _is_line_of_code(fragment) for fragment in fragments)
    return [
        fragment
        for fragment in fragments
        if _counts(fragment)
        or (statements and fragment.marked and fragment.node is not None and fragment.node.kind == "call")
    ]


def _counts(fragment: Fragment) -> bool:
    tree = fragment.node
    if tree is None:
        return fragment.form == "definition"
    if fragment.form == "expression":
        return said_size(tree) > SHORT
    if fragment.marked:
        return True
    if tree.kind == "return":
        return max(map(said_size, tree.children), default=0) > SHORT
    return tree.kind != "fact" and tree.size >= LEAST_INLINE


def _is_line_of_code(fragment: Fragment) -> bool:
    return fragment.form == "header" or (
        fragment.form == "statement" and fragment.node is not None and fragment.node.size >= LEAST_INLINE
    )


def said_size(expression: Node) -> int:
    """Return the size of an expression, or of its largest part if words of prose, or commas, may join its parts."""
    if expression.kind in ("is", "is not", "in", "not in", "and", "or", "tuple"):
        return max((said_size(child) for child in expression.children), default=0)
    return expression.size


def subtrees(statement: Node, *, whole: bool = True) -> set[bytes]:
    """Return the keys of a statement, if `whole`, and of those trees in it that say something by themselves."""
    keys = {
        tree.key
        for tree in statement.walk()
        if tree.size >= _LEAST_SUBTREE or (tree.informative and tree.size >= _LEAST_INFORMATIVE)
    }
    if whole:
        keys.add(statement.key)
    for tree in statement.walk():
        # What a list comprehension collects is what a loop appends.
        collected = tree.children[:1] if tree.kind == "generator" else ()
        if tree.kind == "call" and tree.children and tree.children[0].key in _COLLECTS:
            collected = tree.children[1:]
        keys.update(item.key for item in collected if item.children)
    if statement.kind == "assign" and statement.children[0].kind == "tuple" and statement.children[1].kind != "tuple":
        # "Yes, x = y + 1": the first name is no target.
        keys.add(node("assign", [statement.children[0].children[-1], statement.children[1]]).key)
    return keys


@functools.lru_cache(maxsize=512)
def source_in(text: str) -> tuple[Source, ...]:
    """Return the source that counts in each variant of a text."""
    sources = []
    for variant in variants_of(text):
        if fragments := counted(fragments_of(variant)):
            keys = frozenset(key for fragment in fragments if fragment.node for key in subtrees(fragment.node))
            sources.append(Source(keys, any(fragment.form == "definition" for fragment in fragments)))
    return tuple(sources)


@functools.lru_cache(maxsize=512)
def shown_in(text: str) -> frozenset[bytes]:
    """Return the keys of all trees in a text, short expressions included: who repeats them gives nothing away."""
    return frozenset(
        key
        for variant in variants_of(text)
        for fragment in fragments_of(variant)
        if fragment.node is not None
        for key in subtrees(fragment.node, whole=fragment.form != "expression")
    )
