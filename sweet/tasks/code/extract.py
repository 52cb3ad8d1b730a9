"""Extract the code from an answer. Standard library only: it runs in the reader's process (sweet.tasks.code.reader).

`extract_code`, for the strict scorer, accepts fenced code with any label, or unfenced code surrounded by prose. Of
several fences it takes the last of those that implement a tested name best (`_implements`: a definition that returns
something before a stub, and that before an assignment, an import or a usage), with the definitions from other fences
that it needs. Lines that are not Python (`!pip install x`) are left out of code, and `from __future__` comes first. The
text that it parses is bounded: 20 times the answer plus a constant. `published_code` extracts code exactly as the
published evaluator does.
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
_COMPOUND_LINE = re.compile(
    r"\s|(?:async|class|def|elif|else|except|finally|for|if|match|try|while|with)\b|[@)\]}\"']|\Z"
)
"""A line that code cannot do without: one of a block, of a bracket or of a text, or the first line of one."""
_FUTURE_LINE = re.compile(r"^from[ \t]+__future__[ \t]+import[ \t]+[^\n(;]+$", re.M)
_STATEMENT_LINE = re.compile(r"^[^\S\n]*(?:async\s+)?(?:def|class|import|from)\b", re.M)
_BLOCKS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_DEFINITIONS = _BLOCKS | ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign


def extract_code(answer: str, names: Collection[str]) -> str | None:
    """Return the Python source in `answer` that defines one of `names`, or None if there is no code.

    Args:
        answer: the agent's answer.
        names: the functions or classes that the tests use.
    """
    answer = answer[:LONGEST].replace("\r\n", "\n")
    search = _Search(names, _PARSED_TIMES * len(answer) + _PARSED_MORE)
    fenced = search.compilable(_fenced(answer))
    code = (
        _best(fenced, names)
        or _best(search.compilable(match["code"] for match in _INLINE_FENCE.finditer(answer)), names)
        or search.unfenced(answer.split("\n")[:_MOST_LINES])
    )
    if code is not None:
        return _without_prose(code)
    if fenced:
        return fenced[-1]
    return answer if _STATEMENT_LINE.search(answer) or "lambda" in answer else None


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
    return set() if tree is None else {name for node in tree.body for name in bound_names(node)}


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


def _best(blocks: list[str], names: Collection[str]) -> str | None:
    """Return the last of the blocks that implement one of `names` best, with what it needs; None if none does."""
    ranks = [_implements(code, names) for code in blocks]
    if not any(ranks):
        return None
    return _with_helpers(blocks, max(range(len(blocks)), key=lambda index: (ranks[index], index)), names)


def _implements(source: str, names: Collection[str]) -> int:
    """Return how well a source implements one of `names`: 4 as a class, or a function that returns something, 3 as
    another function, 2 as a stub, 1 as a value or an import, 0 not at all."""
    tree = parsed(source)
    if tree is None:  # it compiles, but is nested too deeply for a tree
        code = compiled(source, "exec")
        functions = [] if code is None else [c.co_name for c in code.co_consts if isinstance(c, CodeType)]
        return 3 if any(name in names for name in functions) else 0
    return max((_rank(node, names) for node in _statements(tree) if not bound_names(node).isdisjoint(names)), default=0)


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a module, and those inside of branches and loops, but none of functions and classes."""
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, _BLOCKS | ast.expr):
            waiting += ast.iter_child_nodes(node)


def _rank(node: ast.stmt, names: Collection[str]) -> int:
    """Return what `_implements` returns for a statement that binds one of the names."""
    if isinstance(node, _BLOCKS):
        if all(map(_does_nothing, node.body)):
            return 2
        return 4 if isinstance(node, ast.ClassDef) or any(map(_gives_a_value, ast.walk(node))) else 3
    value = getattr(node, "value", None)
    if isinstance(value, ast.Lambda):
        return 4
    return 0 if value is not None and _names_in(value) & set(names) else 1


def _does_nothing(node: ast.stmt) -> bool:
    """Return whether it is `pass`, `...`, a docstring, or `raise NotImplementedError`."""
    if isinstance(node, ast.Raise):
        return "NotImplementedError" in _names_in(node)
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _gives_a_value(node: ast.AST) -> bool:
    if isinstance(node, ast.Return):
        return node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None)
    return isinstance(node, ast.Yield | ast.YieldFrom)


def _names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def bound_names(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds: a definition, an import, or an assignment."""
    if isinstance(node, _BLOCKS):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return set().union(*map(_names_in, targets))


def _with_helpers(blocks: list[str], chosen: int, names: Collection[str]) -> str:
    """Return the chosen block after what it or the tests need, directly or indirectly, of the other blocks."""
    tree = parsed(blocks[chosen]) if len(blocks) > 1 else None
    if tree is None:
        return blocks[chosen]
    defined = defined_names(blocks[chosen])
    needed = _missing(tree) | set(names)
    helpers: list[str] = []
    for block in [*reversed(blocks[:chosen]), *blocks[chosen + 1 :]]:
        tree = parsed(block)
        lines = source_lines(block)
        for node in reversed(tree.body if tree else []):
            new_names = bound_names(node) - defined
            if isinstance(node, _DEFINITIONS) and new_names & needed:
                helpers.append(segment(lines, node))
                defined |= new_names
                needed |= _missing(node)
    return _future_first("\n".join([*reversed(helpers), blocks[chosen]])) if helpers else blocks[chosen]


def _future_first(source: str) -> str:
    """Return the source with its imports from `__future__` before all else."""
    imports = _FUTURE_LINE.findall(source)
    return "\n".join([*imports, _FUTURE_LINE.sub("", source)]) if imports else source


def _missing(tree: ast.AST) -> set[str]:
    """Names that the tree reads and nowhere binds."""
    read, bound = set[str](), set[str](dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.stmt):
            bound |= bound_names(node)
    return read - bound


class _Search:
    """Searches for text that parses and defines one of `names`; `left` is how many characters it may still parse."""

    def __init__(self, names: Collection[str], left: int) -> None:
        self.names, self.left = names, left
        any_name = "|".join(re.escape(name) for name in sorted(names))
        definition = rf"[^\S\n]*(?:(?:async\s+)?(?:def|class)\s+(?:{any_name})\b|(?:{any_name})\s*=)"
        self._definition = re.compile(f"^{definition}" if names else r"(?!)", re.M)

    def compilable(self, blocks: Iterator[str]) -> list[str]:
        """Return the blocks that compile as Python, without the indentation that their lines share; of one that
        defines a name, but does not compile, what does."""
        compiling = []
        for block in blocks:
            code = textwrap.dedent(block).strip("\n")
            if compiled(code, "exec") is None and self._definition.search(code):
                lines = _future_first(code).split("\n")
                code = self.parsable(lines, len(lines)) or code
            if compiled(code, "exec") is not None:
                compiling.append(code)
        return compiling

    def unfenced(self, lines: list[str]) -> str | None:
        """Return the lines that parse and define a name, without the prose before and after them."""
        first = next((i for i, line in enumerate(lines) if self._definition.match(line)), None)
        if first is None:
            return None
        for start in [*(i for i in range(first) if _CODE_LINE.match(lines[i])), first]:
            source = self.parsable(lines[start:], first - start)
            if self.left < 0:
                return None
            if source is not None and _implements(source, self.names):
                return _future_first(source)
        return None

    def parsable(self, lines: list[str], droppable: int) -> str | None:
        """Return the text of the lines up to where it does not parse.

        Args:
            droppable: so many lines at the beginning are left empty instead if they do not parse, unless they belong
                to a block.
        """
        lines = textwrap.dedent("\n".join(lines)).split("\n")
        while lines:
            source = "\n".join(lines)
            self.left -= len(source)
            if self.left < 0:
                return None
            try:
                ast.parse(source)
            except SyntaxError as error:
                at = min((error.lineno or len(lines)), len(lines)) - 1
                if 0 <= at < droppable and not _COMPOUND_LINE.match(lines[at]):
                    lines[at] = ""
                else:
                    del lines[max(at, 0) :]
            except (ValueError, RecursionError, MemoryError):
                return None
            else:
                return source
        return None


def _without_prose(source: str) -> str:
    """Return the source without bare names and tuples at its top level: prose that happens to parse."""
    tree = parsed(source)
    lines = source_lines(source)
    for node in tree.body if tree else []:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Name | ast.Tuple | ast.Attribute | ast.Compare):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "\n".join(lines)
