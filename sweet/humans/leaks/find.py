"""`is_leak`: does a reply of the human, with all its earlier ones, give the reference away as source?

Facts in prose, numbers and short expressions never do: telling them is what the human is for. Three searches find
source: a parser of Python, here; the order of atoms in any notation (sweet.humans.leaks.coverage); and forms that no
prose has (sweet.humans.leaks.form). The texts are split and parsed by this package and never executed; a text is read
up to `sweet.humans.leaks.variants.LONGEST` characters (pages: `sweet.humans.leaks.pages.LONGEST`), in a time
proportional to them, and once: what the replies before had is kept. Only a reply with code somewhere is parsed.

To the parser the body of a program is a sequence of statements and first lines of branches and loops, each a normalised
tree (sweet.humans.leaks.tree). A tree of the reference that the human has given in any turn counts with all its parts;
of others the trees inside that were given. What the request shows is no part of the body, and what the agent had
written before is not given by the human who repeats it.

A reference that is neither Python nor a page (a query, a formula, a text) is given away by its lines, copied: one that
is long enough not to be written by chance counts if the human has written it, whatever the white space. Words of the
lines in another order are no leak. A reply that may be encoded is one, whatever the reference is.

It is most of the work of a rollout, and runs in a process of its own (`serve`) with limits of time and memory
(sweet.sandbox.reader), which imports the standard library only.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sweet.humans.leaks import pages
from sweet.humans.leaks.coverage import Coverage, ReferenceAtoms, reference_atoms, rows_of, spells, without
from sweet.humans.leaks.form import Form, form_of
from sweet.humans.leaks.fragments import fragments_of, shown_in, source_in
from sweet.humans.leaks.reading import atoms_of
from sweet.humans.leaks.tree import Node
from sweet.humans.leaks.variants import LEAST_ENCODED, LONGEST, dense, encoded_in, variants_of
from sweet.sandbox.reading import Reply, main

CPU_SECONDS, MEMORY_BYTES = 10.0, 1 << 30
"""Limits of a search in `serve`. It takes a millisecond for a usual reply."""

SHARE = 0.5
"""The share of the reference from which it is given away."""
LEAST = 4
"""Parts that must have been given; a smaller body is given away with the first line of its function only."""
LEAST_LINE = 16
"""Characters, without white space, from which a line is too long to be written by chance."""
_LETTERS = 12
"""Characters of a reply that may be a piece of a program that is spelled."""
_LEAST_PROGRAM = 0.5
"""The share of a text's characters that must be lines of statements for it to be a program without a function."""


class Spoken(Protocol):
    """What was said in a dialogue: a message."""

    @property
    def role(self) -> str: ...

    @property
    def content(self) -> str: ...


def is_leak(reference: str, request: str, dialogue: Sequence[Spoken], reply: str) -> bool:
    """Return whether `reply` gives away the reference, together with the human's earlier replies.

    Args:
        reference: a Python program, a page, or any other text; which, is found by its form.
        request: the first message of the human, which shows the signature.
        dialogue: what was said before the reply; the human's messages have the role `user`, the agent's `assistant`.
    """
    earlier = tuple(message.content for message in dialogue if message.role == "user" and message.content != request)
    seen = [request, *(message.content for message in dialogue if message.role == "assistant")]
    is_page = pages.is_page(reference)
    program = None if is_page else program_of(reference)
    if program is None:
        search = pages.is_leak if is_page else _copies_lines
        return encoded_in(reply[:LONGEST]) >= LEAST_ENCODED or search(reference, seen, earlier, reply)
    is_new = not any(reply in text for text in earlier)
    before, now = _read_replies(reference, request, earlier), _read_replies(reference, request, (*earlier, reply))
    if is_new and spells(now.reference, reply[:LONGEST]):
        return True
    if now.gives(before, is_new=is_new):
        shown_rows = frozenset().union(*map(rows_of, seen))
        had = _read_replies(reference, request, ())
        for text in earlier:
            had = had.with_reply(text, shown_rows)
        if had.with_reply(reply, shown_rows).gives(had, is_new=is_new):
            return True
    return len(now.code) > len(before.code) and _gives_program(program, request, dialogue, reply, before.code)


@dataclass(frozen=True)
class ReadReplies:
    """What the human has said of a reference so far, read once for each reply.

    Attributes:
        form, last: of all replies, and of the last one.
        code: the replies that have what the parser may read as a statement.
    """

    reference: ReferenceAtoms
    coverage: Coverage
    form: Form
    last: Form
    code: tuple[str, ...]

    def with_reply(self, text: str, shown_rows: Set[tuple[str, ...]] = frozenset()) -> ReadReplies:
        """Return what is said with one more reply, without the rows of atoms that were shown to the human."""
        atoms = atoms_of(text)
        if shown_rows:
            atoms = without(atoms, shown_rows)
        coverage = self.coverage.extended(self.reference, atoms)
        form = form_of(text, atoms)
        is_dense = coverage.dense is not self.coverage.dense
        may_be_code = is_dense or form.encoded > 0 or form.prose == 0 or len(text) <= _LETTERS
        code = (*self.code, text) if may_be_code else self.code
        return ReadReplies(self.reference, coverage, Form(*map(operator.add, self.form, form)), form, code)

    def gives(self, before: ReadReplies, *, is_new: bool) -> bool:
        """Return whether the last reply gives the reference away, or, if it is new, has a form that may hold it."""
        if self.coverage.gives(self.reference, before.coverage):
            return True
        words = self.reference.known
        is_strange = self.last.is_strange(words) or (self.form.is_strange(words) and not before.form.is_strange(words))
        return is_new and is_strange


@functools.lru_cache(maxsize=1024)
def _read_replies(reference: str, request: str, texts: tuple[str, ...]) -> ReadReplies:
    """Return what the human's replies say together; each dialogue's last one is read on from those before it."""
    if not texts:
        atoms = reference_atoms(reference, request)
        return ReadReplies(atoms, Coverage.nothing(atoms), Form(), Form(), ())
    if len(texts) % 64 == 1:  # many turns that were not read before need no deep recursion
        return functools.reduce(ReadReplies.with_reply, texts, _read_replies(reference, request, ()))
    return _read_replies(reference, request, texts[:-1]).with_reply(texts[-1])


def is_source(text: str) -> bool:
    """Return whether a text is a program or a page, and not a description in plain words."""
    return pages.is_page(text) or program_of(text) is not None


@dataclass(frozen=True)
class Program:
    """The body of a reference, as its statements."""

    statements: tuple[Node, ...]

    def covered(self, keys: Set[bytes], request_keys: Set[bytes]) -> tuple[int, int]:
        """Return the size of what was given, and of the body without what the request has (`request_keys`)."""
        covered = total = 0
        waiting = list(self.statements)
        while waiting:
            tree = waiting.pop()
            if tree.key in request_keys and tree.kind not in ("name", "literal"):
                continue
            if tree.key in keys:
                covered += tree.size
                total += tree.size
            else:
                total += tree.size - sum(child.size for child in tree.children)
                waiting.extend(tree.children)
        return covered, total


@functools.lru_cache(maxsize=256)
def program_of(reference: str) -> Program | None:
    """Return the program of a reference; None if it is none in Python."""
    text = reference[:LONGEST]
    fragments = fragments_of(text, inside=True)
    lines = (part for part in fragments if part.form != "expression" and part.marked)
    read = sum(len(dense(text[part.start : part.end])) for part in lines)
    is_function = any(fragment.form == "definition" for fragment in fragments)
    if read < _LEAST_PROGRAM * len(dense(text)) and not is_function:
        return None
    body = (fragment.node for fragment in fragments if fragment.node is not None)
    return Program(tuple(statement for statement in body if statement.kind not in ("literal", "name", "import")))


def _gives_program(
    program: Program, request: str, dialogue: Sequence[Spoken], reply: str, earlier: Sequence[str]
) -> bool:
    """Return what the parser finds; `earlier` are the replies before with code somewhere."""
    now = list(source_in(reply))
    if earlier:
        now += [source for text in _joined([*earlier, reply]) for source in source_in(text)]
    if not now:  # most replies; what was shown before is then of no importance
        return False
    request_keys = shown_in(request)
    before: set[bytes] = set()
    shown_keys: set[bytes] = set()
    defined = any(source.defines for source in now)
    for message in dialogue:
        if message.role == "assistant":
            shown_keys |= shown_in(message.content)
        elif message.role == "user" and message.content != request:
            for source in source_in(message.content):
                before |= source.keys - shown_keys
                defined |= source.defines
    had, _ = program.covered(before, request_keys)
    covered, total = program.covered(before.union(*(source.keys - shown_keys for source in now)), request_keys)
    if total < LEAST and not defined:
        return False
    return covered > had and covered >= min(LEAST, total) and covered >= SHARE * total


def _joined(texts: Sequence[str]) -> list[str]:
    """Return what the turns are together: on lines of their own, on one, and without breaks if they may be letters."""
    joined = ["\n".join(texts), " ".join(texts)]
    short = [text for text in texts if len(text) <= _LETTERS]
    if len(short) >= 8:
        joined += ["".join(short), "".join(text.strip(" \"'`") or " " for text in short)]
    return joined


def _copies_lines(reference: str, seen: Sequence[str], earlier: Sequence[str], reply: str) -> bool:
    shown_text = dense("\n".join(seen))
    body = [line for text in reference[:LONGEST].splitlines() if (line := dense(text))]
    if len(body) > 1 and body[0] in shown_text:
        body = body[1:]
    before = [dense(variant) for text in earlier for variant in variants_of(text)]
    now = [dense(variant) for variant in variants_of(reply)]
    open_lines = [line for line in body if len(line) >= LEAST_LINE and line not in shown_text]
    had = [line for line in open_lines if any(line in written for written in before)]
    copied = [line for line in open_lines if line in had or any(line in written for written in now)]
    return len(copied) > len(had) and sum(map(len, copied)) >= SHARE * sum(map(len, body))


class _Message(NamedTuple):
    role: str
    content: str


def search(references: list[str], request: str, roles: list[str], contents: list[str], reply: str) -> Reply:
    """Return whether the reply to a dialogue gives one of the references away (`is_leak`)."""
    dialogue = list(map(_Message, roles, contents))
    return any(is_leak(reference, request, dialogue, reply) for reference in references), []


def serve() -> None:
    """Serve requests."""
    main({"search": search}, CPU_SECONDS, MEMORY_BYTES)
