"""`find_leak`: does a reply of the human, with all its earlier ones, give the reference away as source?

Facts in prose, numbers and short expressions never do: telling them is what the human is for. Source does, in whatever
form: code, as a whole or in fragments over several turns, with other names or another layout, spelled out in words, or
encoded. The texts are split and parsed by this package and never executed; a text is read up to
`sweet.humans.leaks.variants.LONGEST` characters (pages: `sweet.humans.leaks.pages.LONGEST`), in a time proportional to
them.
"""

from __future__ import annotations

from collections.abc import Sequence

from sweet.humans.leaks import lines, pages
from sweet.humans.leaks.base import LONGEST_EXCERPT, Leak
from sweet.humans.leaks.fragments import Source, shown_in, source_in
from sweet.humans.leaks.programs import LEAST, SHARE, Program, program_of
from sweet.tasks.base import Message


def find_leak(reference: str, request: str, dialogue: Sequence[Message], reply: str) -> Leak | None:
    """Return how `reply` gives away the reference, together with the human's earlier replies; None if it does not.

    Args:
        reference: a Python program, a page, or any other text; which, is found by its form.
        request: the first message of the human, which shows the signature.
        dialogue: what was said before the reply; the human's messages have the role `user`, the agent's `assistant`.
    """
    if pages.is_page(reference):
        return pages.find(reference, request, dialogue, reply)
    program = program_of(reference)
    if program is None:
        return lines.find(reference, request, dialogue, reply)
    return _find(program, request, dialogue, reply)


def is_source(text: str) -> bool:
    """Return whether a text is a program or a page, and not a description in plain words."""
    return pages.is_page(text) or program_of(text) is not None


def _find(program: Program, request: str, dialogue: Sequence[Message], reply: str) -> Leak | None:
    earlier = [message.content for message in dialogue if message.role == "user" and message.content != request]
    now = list(source_in(reply))
    if earlier:
        now += [source for text in _joined([*earlier, reply]) for source in source_in(text)]
    if not now:  # most replies; what was shown before is then of no importance
        return None
    known = shown_in(request)
    before: set[bytes] = set()
    shown: set[bytes] = set()
    defined = any(source.defines for source in now)
    for message in dialogue:
        if message.role == "assistant":
            shown |= shown_in(message.content)
        elif message.role == "user" and message.content != request:
            for source in source_in(message.content):
                before |= source.keys - shown
                defined |= source.defines
    had, _ = program.given(before, known)
    keys = before.union(*(source.keys - shown for source in now))
    given, total = program.given(keys, known)
    if given <= had or given < (LEAST if total >= LEAST else total) or given < SHARE * total:
        return None
    if total < LEAST and not defined:
        return None

    def gives(source: Source) -> int:
        return program.given(source.keys - shown, known)[0]

    most = max(now, key=gives)
    return Leak(most.kind, given / total, most.excerpt[:LONGEST_EXCERPT])


def _joined(texts: Sequence[str]) -> list[str]:
    """Return what the turns are together: on lines of their own, on one, and without breaks if they may be letters."""
    joined = ["\n".join(texts), " ".join(texts)]
    short = [text for text in texts if len(text) <= 12]
    if len(short) >= 8:
        joined += ["".join(short), "".join(text.strip(" \"'`") or " " for text in short)]
    return joined
