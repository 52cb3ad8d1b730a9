"""The process that reads the texts of models: it extracts, parses and compiles them, and executes none.

Standard library only. It serves requests of `sweet.tasks.code.reader` over the socket that is its standard input, one
after another, each under a limit of processor time (SIGPROF ends the process), all under a limit of memory. Requests
and replies are JSON; marshalled code follows a reply as bytes, which the other side passes on without loading them.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import marshal
import mmap
import os
import resource
import signal
import socket
import struct
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

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

HEADER = struct.Struct("!I?")
"""Of a message: its length, and whether it is the last one of its sender."""
CPU_SECONDS = 2.0
"""Processor time for one request. A hundred thousand characters of ordinary code need a tenth of it."""
MEMORY_BYTES = 512 * 2**20
MOST_REPLIED = 16 * 2**20
"""Maximum bytes of a reply, and of all code in it."""

_LONGEST_CODE = 256 * 2**10
Reply = tuple[Any, Sequence[bytes | None]]
"""A JSON value, and pieces of code."""
Operations = Mapping[str, Callable[..., Reply]]


def read_answer(answer: str, names: list[str] | None = None) -> Reply:
    """Return the code in an answer, or null; and the same compiled. Without names, the published evaluator's code."""
    source = published_code(answer) if names is None else extract_code(answer, frozenset(names))
    return source, [None if source is None else code_of(source)]


def read_task(reference: str, calls: list[str]) -> Reply:
    """Return the names of the reference that the calls use, and the lines of its `raise` statements; and both compiled:
    the reference, then each call."""
    calls = [call.strip() for call in calls]
    used = set().union(*map(_names, calls))
    value = {"names": sorted(used & defined_names(reference)), "raising": sorted(raising_lines(reference))}
    return value, [code_of(reference), *(code_of(call, "eval") for call in calls)]


def read_faults(reference: str, calls: list[str], names: list[str]) -> Reply:
    """Return why the reference does not compile, or null, and the same for each call; the names of the reference that
    the calls use, and those of them that it imports; and whether the names of the tests use some, where no call does.
    """
    used = set().union(*(_names(call.strip()) for call in calls))
    defined, tree = defined_names(reference), parsed(reference)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)] if tree else []
    imported = set().union(*map(bound_names, imports))
    return {
        "source": _error_of(reference, "exec"),
        "calls": [_error_of(call.strip(), "eval") for call in calls],
        "uses": None if tree is None else sorted(used & defined),
        "imports": sorted(used & imported),
        "swapped": any(_names(name.strip()) & defined for name in names),
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


def _names(call: str) -> set[str]:
    """Return the names in a call."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        return {node.id for node in ast.walk(ast.parse(call, mode="eval")) if isinstance(node, ast.Name)}
    return set()


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
    found = []
    try:
        for node in tree.body if tree else ():
            body: list[ast.stmt] = []
            if isinstance(node, ast.FunctionDef):
                body, node.body = node.body, []
            found.append(_statement(node, lines, ""))
            found += [_statement(inner, lines, "  ") for inner in body]
    except RecursionError:
        return []
    finally:
        parsed.cache_clear()  # functions have lost their bodies
    return found


def _statement(node: ast.stmt, lines: list[str], inside: str) -> tuple[str, str | None]:
    tree = inside + ast.dump(node)
    alone = node.lineno == node.end_lineno
    digest = hashlib.sha256(tree.encode("utf-8", "surrogatepass")).hexdigest()
    return digest, segment(lines, node) if alone else None


def reply_to(request: Any, operations: Operations, memory_bytes: int) -> bytes:
    """Return the reply to a request, [operation, arguments…]: a line of JSON, and the code."""
    pieces: Sequence[bytes | None] = []
    try:
        operation, *arguments = request
        value, pieces = operations[operation](*arguments)
        text = json.dumps({"value": value, "sizes": [None if piece is None else len(piece) for piece in pieces]})
    except MemoryError:
        text, pieces = json.dumps({"fault": f"reading it takes more than {memory_bytes >> 20} MiB of memory"}), []
    except Exception as error:  # whatever the parser or the compiler raises, it is the text's fault
        text, pieces = json.dumps({"fault": f"it cannot be read: {type(error).__name__}: {str(error)[:100]}"}), []
    data = b"\n".join([text.encode("ascii"), b"".join(piece for piece in pieces if piece is not None)])
    if len(data) > MOST_REPLIED:
        data = json.dumps({"fault": "it is too long"}).encode("ascii") + b"\n"
    return data


def serve(
    requests: socket.socket,
    operations: Operations = OPERATIONS,
    cpu_seconds: float = CPU_SECONDS,
    memory_bytes: int = MEMORY_BYTES,
) -> None:
    """Serve requests until the socket closes."""
    while True:
        header = requests.recv(HEADER.size, socket.MSG_WAITALL)
        if len(header) < HEADER.size:
            return
        request = json.loads(requests.recv(HEADER.unpack(header)[0], socket.MSG_WAITALL))
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        reply = reply_to(request, operations, memory_bytes)
        signal.setitimer(signal.ITIMER_PROF, 0)
        parsed.cache_clear()
        compiled.cache_clear()
        requests.sendall(HEADER.pack(len(reply), has_grown(memory_bytes)) + reply)


def has_grown(memory_bytes: int) -> bool:
    """Return whether half of the memory is in use: the process is then replaced, so that no text has less than that.

    The jail shows no process's memory, but refuses to map more than there is.
    """
    try:
        mmap.mmap(-1, memory_bytes // 2, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        return True
    return False


def prepare() -> None:
    """Leave the compiler's warnings out, and let only the limit of processor time end this process."""
    warnings.simplefilter("ignore")  # the compiler's, about an answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)


def main(
    operations: Operations = OPERATIONS, cpu_seconds: float = CPU_SECONDS, memory_bytes: int = MEMORY_BYTES
) -> None:
    """Restrict this process, say that it is ready, and serve."""
    prepare()
    for limit, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_AS, memory_bytes)):
        with contextlib.suppress(ValueError, OSError):  # not every system has them all
            resource.setrlimit(limit, (value, value))
    with socket.socket(fileno=os.dup(0)) as requests:
        requests.sendall(b"+")
        with contextlib.suppress(ConnectionError):  # the other side is gone
            serve(requests, operations, cpu_seconds, memory_bytes)


if __name__ == "__main__":
    main()
