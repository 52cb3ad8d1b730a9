"""Extract the code from an answer. Standard library only: it runs in the reader's process (sweet.tasks.code.reader).

`extract_code`, for the strict scorer, accepts fenced code with any label, of several fences the one with the function
that is tested (with the definitions from other fences that it needs), or unfenced code surrounded by prose. The text
that it parses is bounded: 20 times the answer plus a constant. `published_code` extracts code exactly as the published
evaluator does.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import textwrap
from collections.abc import Collection, Iterator
from types import CodeType
from typing import Literal

from sweet.sandbox.child import CALL_FILENAME, FILENAME

FORBIDDEN_IN_PUBLISHED = (
    "import os",
    "from os",
    "import sys",
    "from sys",
    "sudo",
    "transformers",
    "exit(",
    "quit(",
    "argparse",
)
"""The published evaluator scores an answer that contains one of these as 0 without running it."""

LONGEST = 100_000
"""Maximum characters of an answer that are read, and of a source that is compiled outside the jail."""
_MOST_LINES = 2_000
_PARSED_TIMES, _PARSED_MORE = 20, 200_000
"""The lines of code in prose are found by parsing: at most so many times the answer, plus so many characters."""

_INLINE_FENCE = re.compile(r"```(?:[a-zA-Z0-9+]*[ \t]*\n)?(?P<code>.*?)(?:```|\Z)", re.S)
_QUOTE = " \t>"
_CODE_LINE = re.compile(r"(?:async[ \t]+)?def\b|class\b|@|import\b|from\b|[A-Za-z_][\w.]*[ \t]*(?::[^=\n]+)?=(?!=)")
_STATEMENT_LINE = re.compile(r"^[^\S\n]*(?:async\s+)?(?:def|class|import|from)\b", re.M)
_DEFINITIONS = (
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Assign,
    ast.AnnAssign,
)


def extract_code(answer: str, names: Collection[str]) -> str | None:
    """Return the Python source in `answer` that defines one of `names`, or None if there is no code.

    Args:
        answer: the agent's answer.
        names: the functions or classes that the tests use.
    """
    answer = answer[:LONGEST].replace("\r\n", "\n")
    fenced = _parsable(_fenced(answer))
    for blocks in (fenced, _parsable(match["code"] for match in _INLINE_FENCE.finditer(answer))):
        defining = [index for index, code in enumerate(blocks) if _defines(code, names)]
        if defining:
            return _with_helpers(blocks, defining[-1])
    bare = _unfenced(answer, names)
    if bare is not None:
        return bare
    if fenced:
        return fenced[-1]
    return answer if _looks_like_code(answer) else None


def published_code(answer: str) -> str | None:
    """Return the code that the published evaluator runs, or None if it scores the answer as 0 without running it."""
    if any(text in answer for text in FORBIDDEN_IN_PUBLISHED):
        return None
    if "```python" in answer:
        answer = answer.split("```python", 2)[1].split("```", 1)[0]
    if "```" in answer:
        answer = answer.split("```", 2)[1]
    return answer


def defined_names(source: str) -> set[str]:
    """Return the names that the source defines at its top level; none if it does not parse."""
    tree = parsed(source)
    return set() if tree is None else {name for node in tree.body for name in _bound(node)}


@functools.lru_cache(maxsize=2)
def parsed(source: str) -> ast.Module | None:
    """Return the source's syntax tree, or None if it does not parse."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@functools.lru_cache(maxsize=4)
def compiled(source: str, mode: Literal["exec", "eval"]) -> CodeType | None:
    """Return the code of a source or an expression, or None if it does not compile."""
    try:
        code: CodeType = compile(source, FILENAME if mode == "exec" else CALL_FILENAME, mode, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None
    return code


def source_lines(source: str) -> list[str]:
    """Return the lines of a source as the parser counts them."""
    return re.split(r"\r\n?|\n", source)


def segment(lines: list[str], node: ast.stmt) -> str:
    """Return the text of a statement, with its decorators, from the lines of its source."""
    start, end = node.lineno - 1, node.end_lineno or node.lineno
    first, last = node.col_offset, node.end_col_offset
    decorators = getattr(node, "decorator_list", [])
    if decorators:  # a decorator begins its line
        start, first = min(start, decorators[0].lineno - 1), 0
    text = lines[start:end]
    text[-1] = text[-1].encode("utf-8", "surrogatepass")[:last].decode("utf-8", "surrogatepass")
    text[0] = text[0].encode("utf-8", "surrogatepass")[first:].decode("utf-8", "surrogatepass")
    return "\n".join(text)


def _fenced(answer: str) -> Iterator[str]:
    """Yield the text between each fence (a line that begins with ``` or ~~~) and the next one like it, or the end."""
    lines = answer.split("\n")
    after = 0
    while after < len(lines) - 1:
        fence = _fence(lines[after])
        after += 1
        if fence is not None:
            begin = after
            while after < len(lines) and not lines[after].lstrip(_QUOTE).startswith(fence):
                after += 1
            yield "\n".join(lines[begin:after])
            after += 1


def _fence(line: str) -> str | None:
    """Return the fence with which the line begins, or None."""
    text = line.lstrip(_QUOTE)
    label = text.lstrip(text[:1]) if text[:1] in ("`", "~") else text
    length = len(text) - len(label)
    return text[:length] if length >= 3 and "`" not in label else None


def _parsable(blocks: Iterator[str]) -> list[str]:
    """Return the blocks that compile as Python, without the indentation that their lines share."""
    return [code for block in blocks if compiled(code := textwrap.dedent(block).strip("\n"), "exec") is not None]


def _defines(source: str, names: Collection[str]) -> bool:
    code = compiled(source, "exec")
    functions = [] if code is None else [c.co_name for c in code.co_consts if isinstance(c, CodeType)]
    return any(name in names for name in functions) or not defined_names(source).isdisjoint(names)


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def _with_helpers(blocks: list[str], chosen: int) -> str:
    """Return the chosen block after the definitions of other blocks that it needs, directly or indirectly."""
    tree = parsed(blocks[chosen]) if len(blocks) > 1 else None
    if tree is None:
        return blocks[chosen]
    wanted = _missing(tree)
    have = defined_names(blocks[chosen])
    helpers: list[str] = []
    for block in [*reversed(blocks[:chosen]), *blocks[chosen + 1 :]]:
        tree = parsed(block)
        lines = source_lines(block)
        for node in reversed(tree.body if tree else []):
            names = _bound(node) - have
            if isinstance(node, _DEFINITIONS) and names & wanted:
                helpers.append(segment(lines, node))
                have |= names
                wanted |= _missing(node)
    return "\n".join([*reversed(helpers), blocks[chosen]])


def _missing(tree: ast.AST) -> set[str]:
    """Names that the tree reads and nowhere binds."""
    read, bound = set[str](), set[str](dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.stmt):
            bound |= _bound(node)
    return read - bound


def _unfenced(answer: str, names: Collection[str]) -> str | None:
    """Return the lines that parse and define one of `names`, without the prose before and after them."""
    lines = answer.split("\n")[:_MOST_LINES]
    named = "|".join(re.escape(name) for name in sorted(names))
    definition = re.compile(rf"\s*(?:(?:async\s+)?def|class)\s+(?:{named})\b|(?:{named})\s*=" if named else r"(?!)")
    first = next((i for i, line in enumerate(lines) if definition.match(line)), None)
    if first is None:
        return None
    search = _Search(_PARSED_TIMES * len(answer) + _PARSED_MORE)
    for start in [*(i for i in range(first) if _CODE_LINE.match(lines[i])), first]:
        if search.left < 0:
            return None
        source = search.longest_parsable(lines[start:])
        if source is not None and search.may_parse(source) and _defines(source, names):
            return _without_prose(source)
    return None


class _Search:
    """Searches for lines that parse; `left` is the number of characters that it may still parse."""

    def __init__(self, left: int) -> None:
        self.left = left

    def may_parse(self, text: str) -> bool:
        self.left -= len(text)
        return self.left >= 0

    def longest_parsable(self, lines: list[str]) -> str | None:
        """Return the longest prefix of the lines that parses, found by cutting at each syntax error."""
        end = len(lines)
        while end > 0:
            source = textwrap.dedent("\n".join(lines[:end]))
            if not self.may_parse(source):
                return None
            try:
                ast.parse(source)
            except SyntaxError as error:
                end = min(end - 1, max((error.lineno or end) - 1, 0))
            except (ValueError, RecursionError, MemoryError):
                return None
            else:
                return source
        return None


def _without_prose(source: str) -> str:
    """Return the source without bare names and tuples at its top level: prose that happens to parse."""
    tree = ast.parse(source)
    lines = source_lines(source)
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Name | ast.Tuple | ast.Attribute | ast.Compare):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "\n".join(lines)


def _looks_like_code(answer: str) -> bool:
    return _STATEMENT_LINE.search(answer) is not None or "lambda" in answer
