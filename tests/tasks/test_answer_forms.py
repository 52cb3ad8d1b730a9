"""The ways in which chat models write answers: what stands before, behind, between and around the code.

The rule: no answer that the published evaluator pays is refused by the strict scorer for the way it is written. It is
held over a grammar of answers; the code of each, written by this file alone, is run here.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.tasks.code.extract import extract_code, published_code

NAMES = {"fee", "LIMIT"}
CODE = "def fee(hours):\n    return 3 * max(hours - 1, 0)\n"
IMPLEMENTATIONS = [
    CODE,
    "fee = lambda hours: 3 * max(hours - 1, 0)\n",
    'def fee(hours):\n    """The fee.\n\nfor hours"""\n    import math\n    return 3 * max(math.floor(hours) - 1, 0)\n',
    "def fee(hours):\n    if hours < 1:\n        return 0\n    return 3 * (hours - 1)\n",
    "def fee(hours: int) -> int:\n    paid = 0\n\n    for _ in range(hours - 1):\n        paid += 3\n    return paid\n",
]
OTHERS = {
    "usage": "print(fee(5))",
    "usage that imports": "from parking import fee\n\nprint(fee(5))",
    "usage that imports the module": "import parking\n\nfee = parking.fee\nprint(fee(5))",
    "usage with a variable of the same name": "fee = fee(5)\nprint(fee)",
    "a value of the same name": "hours = 5\nfee = 12",
    "unittest": "import unittest\nfrom parking import fee\n\nclass T(unittest.TestCase):\n    def test(self):\n"
    "        self.assertEqual(fee(1), 0)\n\nif __name__ == '__main__':\n    unittest.main()",
    "pytest": "from parking import fee as fee\n\ndef test_fee():\n    assert fee(1) == 0",
    "signature": "def fee(hours): ...",
    "stub": 'def fee(hours):\n    """Return the fee."""\n    raise NotImplementedError',
    "to do": "def fee(hours):\n    # your code\n    pass",
    "first step": "def fee(hours):\n    paid = hours - 1\n    print(paid)",
    "returns nothing yet": "def fee(hours):\n    return None",
    "shell": "pip install parking\n$ python parking.py",
    "output": "12\n>>> fee(2)\n3",
    "json": '{"fee": 12}',
    "a formula": "3 * max(hours - 1, 0)",
}
BEFORE = [
    "",
    "Here's the function you've asked for:",
    "# Solution\n\n1. It's simple.",
    "Thanks! That's all I need.",
]
LABELS = ["python", "Python", "py", "python3", "", "python title=parking.py"]
HEADS = ["", "import math\n", "# parking.py\n", "from __future__ import annotations\n", "from typing import Any\n"]
TAILS = ["", "\nif __name__ == '__main__':\n    print(fee(3))\n", "\nassert fee(1) == 0\n", "\nprint(fee(5))  # 12\n"]


def fenced(code: str, label: str = "python", fence: str = "```") -> str:
    return f"{fence}{label}\n{code}\n{fence}"


def fees(source: str | None) -> list[Any] | None:
    """Return the fees of the function that a source defines; None if it has no such function."""
    if source is None:
        return None
    scope: dict[str, Any] = {"__name__": "answer", "print": lambda *_: None}
    try:
        exec(compile(source, "answer", "exec", dont_inherit=True), scope)
        return [scope["fee"](hours) for hours in (0, 1, 2, 24)]
    except Exception:
        return None


RIGHT = [0, 0, 3, 69]


@st.composite
def answers(draw: st.DrawFn) -> str:
    """An answer with one right implementation among prose and other fences."""
    code = draw(st.sampled_from(HEADS)) + draw(st.sampled_from(IMPLEMENTATIONS)) + draw(st.sampled_from(TAILS))
    fence = draw(st.sampled_from(["```", "~~~"]))
    blocks = [fenced(draw(st.sampled_from(list(OTHERS.values()))), draw(st.sampled_from(LABELS))) for _ in range(3)]
    count = draw(st.integers(0, 3))
    at = draw(st.integers(0, count))
    parts = [*blocks[:at], fenced(code, draw(st.sampled_from(LABELS)), fence), *blocks[at:count]]
    between = draw(st.sampled_from(["\n", "\n\nHow to use it:\n\n", "\nLet's test it:\n", "\n---\n**test.py**\n"]))
    text = draw(st.sampled_from(BEFORE)) + "\n" + between.join(parts) + draw(st.sampled_from(["", "\nIt's done."]))
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


@given(answers())
def test_a_right_implementation_is_found_among_what_stands_around_it(answer: str) -> None:
    assert fees(extract_code(answer, NAMES)) == RIGHT


@given(st.text(max_size=40), st.sampled_from(IMPLEMENTATIONS), st.sampled_from(TAILS), st.text(max_size=40))
def test_what_the_published_evaluator_finds_is_found(before: str, code: str, tail: str, after: str) -> None:
    for answer in (f"{before}{fenced(code + tail)}{after}", f"{before}\n```{code}```{after}", code + tail):
        if fees(published_code(answer)) == RIGHT:
            assert fees(extract_code(answer, NAMES)) == RIGHT, answer


@pytest.mark.parametrize("name", OTHERS)
def test_nothing_else_is_taken_for_the_implementation(name: str) -> None:
    for parts in ([fenced(CODE), fenced(OTHERS[name])], [fenced(OTHERS[name]), fenced(CODE)]):
        assert fees(extract_code("\n".join(parts), NAMES)) == RIGHT


LINES = [
    "!pip install numpy",
    "%matplotlib inline",
    "$ pip install numpy",
    "pip install numpy",
    "parking.py",
    "from __future__ import annotations",
    "Then the function:",
    "It's as follows",
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("fence", ["```", ""])
def test_one_line_does_not_cut_off_what_stands_above_it(line: str, fence: str) -> None:
    above = "import math\nRATE = 3\n\ndef positive(x):\n    return max(math.floor(x), 0)"
    code = f"{above}\n{line}\n\ndef fee(hours):\n    return RATE * positive(hours - 1)"
    assert fees(extract_code(fenced(code, fence=fence) if fence else f"Sure.\n\n{code}\n\nDone!", NAMES)) == RIGHT


def test_helpers_of_other_fences_stand_behind_imports_from_the_future() -> None:
    helper = "def positive(x):\n    return max(x, 0)"
    main = "from __future__ import annotations\n\ndef fee(hours: int | Any) -> Any:\n    return 3 * positive(hours - 1)"
    assert fees(extract_code(f"{fenced(helper)}\nThen:\n{fenced(main)}", NAMES)) == RIGHT


def test_all_that_the_tests_call_is_collected_from_the_fences() -> None:
    source = extract_code(f"{fenced('LIMIT = 8')}\nand\n{fenced(CODE)}\n{fenced('print(fee(LIMIT))')}", NAMES)
    assert source is not None
    assert "LIMIT = 8" in source
    assert fees(source) == RIGHT


def test_of_several_implementations_the_last_one_counts() -> None:
    wrong = "def fee(hours):\n    return 0"
    assert fees(extract_code(f"{fenced(wrong)}\nCorrected:\n{fenced(CODE)}", NAMES)) == RIGHT
    assert fees(extract_code(f"{fenced(CODE)}\nCorrected:\n{fenced(wrong)}", NAMES)) == [0, 0, 0, 0]


def test_code_that_is_wrong_is_not_mended() -> None:
    for code in ("def fee(hours) return 3", "def fee(hours):\n    return 3 *", "def fee(hours:\n    return 3"):
        assert fees(extract_code(fenced(code), NAMES)) is None
