"""Hostile texts: the extraction of answers, and the markers of replies.

Texts are lists of [token, repetitions].
"""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import strategies as st

from benchmarks.nasty import TOKENS
from sweet.sandbox.reader import Unreadable
from sweet.tasks.base import Move
from sweet.tasks.code.extract import published_code
from sweet.tasks.code.reader import read_answer
from sweet.tasks.markers import ANSWER, ANSWER_MARKER, OUTPUT, OUTPUT_MARKER, read_move

MOST_CHARACTERS = 120_000
REPETITIONS = st.one_of(st.integers(1, 4), st.integers(1, 60), st.sampled_from([400, 3_000, 20_000, 100_000]))
PIECES = st.lists(st.tuples(st.sampled_from(TOKENS), REPETITIONS).map(list), max_size=12)
"""Texts as lists of [token, repetitions]; some are long."""
NAMES = frozenset({"f"})
PROGRAMS = (
    "def f(x):\n    return x",
    "import re\n\n\ndef f(x):\n    '''A fence: ``.'''\n    return re.sub('~~', '', x)",
    "class A:\n    def g(self):\n        return 1\n\n\ndef f(x):\n    return A().g()",
    "f = lambda x: x",
    "async def f(x):\n\treturn x",
    "@a\ndef f(x):\n    return '''\n> x\n'''",
    "x = [\n    1,\n]\n\n\ndef f(y):\n    return x",
)


def text_of(pieces: list[list[Any]]) -> str:
    return "".join(token * times for token, times in pieces)[:MOST_CHARACTERS]


def check_extraction(value: dict[str, Any]) -> None:
    """Check that any text is read or is unreadable, and that a fenced program among prose is the code."""
    text, program = text_of(value["text"]), value["program"]
    if program is None:
        with contextlib.suppress(Unreadable):
            code = read_answer(text, NAMES).source
            assert code is None or len(code) <= 2 * len(text) + 100
        published = published_code(text)
        assert published is None or published in text
        return
    prose = "".join(each for each in text if each not in "`~\r")[:20_000]
    answer = f"{prose}\n```python\n{program}\n```\n"
    assert read_answer(answer, NAMES).source == program, "a fenced program after prose"
    assert read_answer(f"```\n{program}\n```\n{prose}", NAMES).source == program, "a fenced program before prose"


EXTRACTION = st.fixed_dictionaries({"text": PIECES, "program": st.none() | st.sampled_from(PROGRAMS)})


def check_markers(value: list[list[Any]]) -> None:
    """Check that any reply is read, and that one with exact markers has the parts between them in both protocols."""
    text = text_of(value)
    for protocol in ("paper", "upstream"):
        going_on = read_move(text, last=False, protocol=protocol)
        ended = read_move(text, last=True, protocol=protocol)
        assert going_on.content == ended.content
        assert going_on.content in text
        assert going_on.answer is None or going_on.answer in text
        assert going_on.ends == (going_on.answer is not None)
        assert ended.answer is not None
        if protocol == "paper":
            again = read_move(f"{OUTPUT_MARKER} {going_on.content}", last=False, protocol=protocol)
            assert OUTPUT_MARKER in text or again == going_on
    words = " ".join(text.replace("OUTPUT", "").replace("ANSWER", "").split())
    is_marker = ANSWER.search(f"{words}\n") or OUTPUT.search(words)
    words = words if words.isascii() and not set(words) & set("*_`") and not is_marker else "x"
    exact = read_move(f"thought\n{OUTPUT_MARKER} {ANSWER_MARKER}\n{words}", last=False, protocol="paper")
    assert exact == Move(content=f"{ANSWER_MARKER}\n{words}".strip(), answer=words, ends=True)
