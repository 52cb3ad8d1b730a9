"""Extract the code from an answer.

`extract_code`, for the strict scorer, accepts fenced code with any label, of several fences the one with the function
that is tested (with the definitions from other fences that it needs), or unfenced code surrounded by prose.
`published_code` extracts code exactly as the published evaluator does.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import textwrap
from collections.abc import Collection
from types import CodeType

from sweet.sandbox.program import compiled, quiet

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

_FENCE = re.compile(r"^[ \t>]*+(?P<fence>`{3,}+|~{3,}+)[^\n`]*+\n(?P<code>.*?)(?:^[ \t>]*(?P=fence)|\Z)", re.M | re.S)
_INLINE_FENCE = re.compile(r"```(?:[a-zA-Z0-9+]*[ \t]*\n)?(?P<code>.*?)(?:```|\Z)", re.S)
_LONGEST = 100_000
_MOST_LINES = 2_000
_CODE_LINE = re.compile(r"(?:async[ \t]+)?def\b|class\b|@|import\b|from\b|[A-Za-z_][\w.]*[ \t]*(?::[^=\n]+)?=(?!=)")
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
    answer = answer[:_LONGEST].replace("\r\n", "\n")
    for blocks in (_fenced(answer, _FENCE), _fenced(answer, _INLINE_FENCE)):
        defining = [index for index, code in enumerate(blocks) if _defines(code, names)]
        if defining:
            return _with_helpers(blocks, defining[-1])
    bare = _unfenced(answer, names)
    if bare is not None:
        return bare
    fenced = _fenced(answer, _FENCE)
    if fenced:
        return fenced[-1]
    return answer if _looks_like_code(answer) else None


def published_code(answer: str) -> str | None:
    """Return the code that the published evaluator runs, or None if it scores the answer as 0 without running it."""
    if any(text in answer for text in FORBIDDEN_IN_PUBLISHED):
        return None
    if "```python" in answer:
        answer = answer.split("```python")[1].split("```")[0]
    if "```" in answer:
        answer = answer.split("```")[1]
    return answer


def defined_names(source: str) -> set[str]:
    """Return the names that the source defines at its top level; none if it does not parse."""
    tree = parsed(source)
    return set() if tree is None else {name for node in tree.body for name in _bound(node)}


def _fenced(answer: str, fence: re.Pattern[str]) -> list[str]:
    """Return the fenced blocks that parse as Python."""
    blocks = (textwrap.dedent(match["code"]).strip("\n") for match in fence.finditer(answer))
    return [code for code in blocks if compiled(code) is not None]


@functools.lru_cache(maxsize=16)
def parsed(source: str) -> ast.Module | None:
    """Return the source's syntax tree, or None if it does not parse."""
    try:
        with quiet():
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _defines(source: str, names: Collection[str]) -> bool:
    code = compiled(source)
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
    if len(blocks) == 1:
        return blocks[chosen]
    wanted = _missing(blocks[chosen])
    have = defined_names(blocks[chosen])
    helpers: list[str] = []
    for block in [*reversed(blocks[:chosen]), *blocks[chosen + 1 :]]:
        tree = parsed(block)
        for node in reversed(tree.body if tree else []):
            names = _bound(node) - have
            if isinstance(node, _DEFINITIONS) and names & wanted:
                source = ast.unparse(node)
                helpers.insert(0, source)
                have |= names
                wanted |= _missing(source)
    return "\n".join([*helpers, blocks[chosen]])


def _missing(source: str) -> set[str]:
    """Names that the source reads and nowhere binds."""
    tree = parsed(source)
    if tree is None:
        return set()
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
    for start in [*(i for i in range(first) if _CODE_LINE.match(lines[i])), first]:
        source = _longest_parsable(lines[start:])
        if source is not None and _defines(source, names):
            return _without_prose(source)
    return None


def _longest_parsable(lines: list[str]) -> str | None:
    """Return the longest prefix of the lines that parses, found by cutting at each syntax error."""
    end = len(lines)
    while end > 0:
        source = textwrap.dedent("\n".join(lines[:end]))
        try:
            with quiet():
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
    with quiet():
        tree = ast.parse(source)
    lines = source.split("\n")
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Name | ast.Tuple | ast.Attribute | ast.Compare):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "\n".join(lines)


def _looks_like_code(answer: str) -> bool:
    return re.search(r"^\s*(?:async\s+)?(?:def|class|import|from)\b.*", answer, re.M) is not None or "lambda" in answer
