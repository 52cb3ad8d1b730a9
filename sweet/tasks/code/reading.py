"""What the process with limits does for `sweet.tasks.code.reader`: it extracts, parses and compiles texts of models.

It executes none. Standard library only."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import marshal
import socket
from collections.abc import Iterable
from typing import Literal

from sweet.sandbox.reading import Operations, Reply
from sweet.sandbox.reading import serve as serve_operations
from sweet.tasks.code.extract import (
    LONGEST,
    bound_names,
    compiled,
    defined_names,
    extract_code,
    parsed,
    published_code,
    segment,
    source_lines,
)
from sweet.tasks.code.mutants import mutants

_LONGEST_CODE = 256 * 2**10


def read_answer(answer: str, names: list[str] | None = None) -> Reply:
    """Return the code in an answer, or null; and the same compiled. Without names, the published evaluator's code."""
    source = published_code(answer) if names is None else extract_code(answer, frozenset(names))
    return source, [None if source is None else code_of(source)]


def read_task(reference: str, calls: list[str]) -> Reply:
    """Return the names of the reference that the calls use, and the lines of its `raise` statements; and both compiled:
    the reference, then each call."""
    calls = [call.strip() for call in calls]
    used = _used(calls, defined_names(reference))
    value = {"names": sorted(used), "raising": sorted(raising_lines(reference))}
    return value, [code_of(reference), *(code_of(call, "eval") for call in calls)]


def read_faults(reference: str, calls: list[str], names: list[str]) -> Reply:
    """Return why the reference does not compile, or null, and the same for each call; the names of the reference that
    the calls use, and those of them that it imports; and whether the names of the tests use some, where no call does.
    """
    calls = [call.strip() for call in calls]
    defined, tree = defined_names(reference), parsed(reference)
    used = _used(calls, defined)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)] if tree else []
    imported = set().union(*map(bound_names, imports))
    return {
        "source": _error_of(reference, "exec"),
        "calls": [_error_of(call, "eval") for call in calls],
        "uses": None if tree is None else sorted(used),
        "imports": sorted(used & imported),
        "swapped": not used and bool(_used([name.strip() for name in names], defined)),
    }, []


def _error_of(source: str, mode: Literal["exec", "eval"]) -> str | None:
    """Return what the compiler says of a text in one line; None if it compiles, or is too long to be compiled here."""
    if len(source) > LONGEST:
        return None
    try:
        compile(source, "<task>", mode, dont_inherit=True)
    except SyntaxError as error:
        at = f" (line {error.lineno})" if error.lineno and mode == "exec" else ""
        return f"{type(error).__name__}: {error.msg}{at}"
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def read_statements(source: str) -> Reply:
    """Return the statements of a source: for each the hash of its syntax tree, and its text if it is on one line."""
    return statements(source), []


def read_answer_statements(answer: str, names: list[str]) -> Reply:
    """Return the statements of the code in an answer, as `read_statements`."""
    source = extract_code(answer, frozenset(names))
    return [] if source is None else statements(source), []


def read_mutants(source: str) -> Reply:
    """Return mutants of a source: of each what was changed, and its source."""
    return mutants(source), []


OPERATIONS: Operations = {
    operation.__name__: operation
    for operation in (read_answer, read_task, read_faults, read_statements, read_answer_statements, read_mutants)
}


def code_of(source: str, mode: Literal["exec", "eval"] = "exec") -> bytes | None:
    """Return the marshalled code; None if the text does not compile, or it or the code is long: the child compiles it
    then, and says what is wrong."""
    code = compiled(source, mode) if len(source) <= LONGEST else None
    try:
        data = None if code is None else marshal.dumps(code)
    except ValueError:  # nested too deeply
        return None
    return data if data is not None and len(data) <= _LONGEST_CODE else None


def _used(calls: Iterable[str], names: set[str]) -> set[str]:
    """Return those of the names that the calls use. A call is only parsed if it may use one that was not found yet."""
    used: set[str] = set()
    for call in calls:
        # an identifier that is not ASCII is another one to Python than to a search
        if not call.isascii() or any(name in call for name in names - used):
            with contextlib.suppress(SyntaxError, ValueError, RecursionError):
                identifiers = {node.id for node in ast.walk(ast.parse(call, mode="eval")) if isinstance(node, ast.Name)}
                used |= identifiers & names
    return used


def raising_lines(source: str) -> set[int]:
    """Return the lines of `raise` statements."""
    if "raise" not in source:
        return set()
    return {
        line
        for node in ast.walk(parsed(source) or ast.Module([], []))
        if isinstance(node, ast.Raise)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def statements(source: str) -> list[tuple[str, str | None]]:
    """Return the statements of a source in their order, with those of functions; none if it does not parse."""
    tree, lines = parsed(source), source_lines(source)
    rows = []
    try:
        for node in tree.body if tree else ():
            body: list[ast.stmt] = []
            if isinstance(node, ast.FunctionDef):
                body, node.body = node.body, []
            rows.append(_statement(node, lines, ""))
            rows += [_statement(inner, lines, "  ") for inner in body]
    except RecursionError:
        return []
    finally:
        parsed.cache_clear()  # functions have lost their bodies
    return rows


def _statement(node: ast.stmt, lines: list[str], inside: str) -> tuple[str, str | None]:
    tree = inside + ast.dump(node)
    alone = node.lineno == node.end_lineno
    digest = hashlib.sha256(tree.encode("utf-8", "surrogatepass")).hexdigest()
    return digest, segment(lines, node) if alone else None


def serve(requests: socket.socket) -> None:
    """Serve requests until the socket closes."""
    serve_operations(requests, OPERATIONS)
