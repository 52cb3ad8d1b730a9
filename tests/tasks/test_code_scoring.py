"""Scoring answers to code tasks: extraction from prose, judging outside the sandbox, both protocols."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.sandbox.pool import Sandbox
from sweet.sandbox.program import Limits, Program
from sweet.sandbox.tiers import open_sandbox
from sweet.tasks.base import Task
from sweet.tasks.code.expected import References, Scorer
from sweet.tasks.code.extract import FORBIDDEN_IN_PUBLISHED, LONGEST, extract_code, published_code
from sweet.tasks.code.reader import read_task
from sweet.tasks.code.scoring import CodeScorer
from sweet.tasks.scores import Verdict
from tests.tasks.recorded import watch

CODE = "def price(hours):\n    return 3 * hours"
FENCE = "```"


def task(truth: str = CODE, *calls: str) -> Task:
    tests = {f"test{i}": call for i, call in enumerate(calls or ("price(1)", "price(2)", "price(-1)"), 1)}
    return Task(id="t", problem_description="A price.", ground_truth=truth, test_cases=tests)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with open_sandbox("auto", 1) as sandbox:
        yield sandbox


def score(box: Sandbox, answer: str, of: Task | None = None, scorer: Scorer = "strict") -> Verdict:
    (verdict,) = CodeScorer(box, scorer).score([(of or task(), answer)])
    return verdict


AS_WRITTEN = {
    "bare": CODE,
    "python fence": f"{FENCE}python\n{CODE}\n{FENCE}",
    "py fence": f"{FENCE}py\n{CODE}\n{FENCE}",
    "plain fence": f"{FENCE}\n{CODE}\n{FENCE}",
    "tilde fence": f"~~~python\n{CODE}\n~~~",
    "fence on one line with the code": f"{FENCE}{CODE}{FENCE}",
    "fence that never closes": f"Sure:\n{FENCE}python\n{CODE}",
    "prose around a fence": f"Here's the function you've asked for:\n{FENCE}python\n{CODE}\n{FENCE}\nIt's done.",
    "prose without a fence": f"Here's what you need:\n\n{CODE}\n\nThis returns the price, it's simple.",
    "prose that happens to parse": f"Code\n\n{CODE}\n\nDone",
    "two fences, usage second": f"{FENCE}python\n{CODE}\n{FENCE}\nUse it:\n{FENCE}python\nprint(price(2))\n{FENCE}",
    "two fences, usage first": f"{FENCE}\nprice(2)  # 6\n{FENCE}\nCode:\n{FENCE}python\n{CODE}\n{FENCE}",
    "shell fence first": f"{FENCE}bash\npip install x\n{FENCE}\n{FENCE}python\n{CODE}\n{FENCE}",
    "corrected in a second fence": f"{FENCE}\ndef price(h): return 0\n{FENCE}\nNo:\n{FENCE}\n{CODE}\n{FENCE}",
    "helper in its own fence": f"{FENCE}\nRATE = 3\n{FENCE}\nand\n{FENCE}\ndef price(h): return RATE * h\n{FENCE}",
    "indented fence": "1. Do:\n   ```python\n   def price(h):\n       return 3 * h\n   ```",
    "import": "import math\ndef price(h): return math.floor(3 * h)",
    "helper function": "def rate(): return 3\ndef price(h): return rate() * h",
    "recursion": "def price(h):\n    return -price(-h) if h < 0 else 0 if h == 0 else 3 + price(h - 1)",
    "class": "class Meter:\n    rate = 3\ndef price(h): return Meter.rate * h",
    "constant": "RATE: int = 3\ndef price(h): return RATE * h",
    "lambda": "price = lambda h: 3 * h",
    "async helper": "import asyncio\nasync def p(h): return 3 * h\ndef price(h): return asyncio.run(p(h))",
    "main guard": f"{CODE}\nif __name__ == '__main__':\n    print(price(int(input())))",
    "text that the published filters dislike": f"import os\nimport sys\n# exit()\n{CODE}",
    "windows line ends": CODE.replace("\n", "\r\n"),
    "float where int is wanted": "def price(h): return 3.0 * h",
}


@pytest.mark.parametrize("name", AS_WRITTEN)
def test_answers_as_people_write_them(box: Sandbox, name: str) -> None:
    verdict = score(box, AS_WRITTEN[name])
    assert (verdict.outcome, verdict.reward, verdict.passed, verdict.total) == ("passed", 1.0, 3, 3), verdict


@pytest.mark.parametrize(
    ("answer", "outcome", "reward"),
    [
        ("", "no_answer", 0.0),
        ("No answer", "no_answer", 0.0),
        ("I would need more details first.", "no_answer", 0.0),
        ("def price(h): return 4 * h", "failed", 0.0),
        ("def price(h): return 3 * h if h > 0 else 0", "failed", 2 / 3),
        ("def price(h): raise ValueError", "error", 0.0),
        ("def price(h) return 3", "error", 0.0),
        ("def cost(h): return 3 * h", "error", 0.0),
        ("def price(h):\n    while True: pass", "timeout", 0.0),
        ("def price(h):\n    while h == 2: pass\n    return 3 * h", "timeout", 2 / 3),
        ("import os\ndef price(h): os._exit(0)", "crash", 0.0),
        ("def price(h): raise SystemExit", "error", 0.0),
        ("class A:\n    def __eq__(self, o): return True\ndef price(h): return A()", "failed", 0.0),
    ],
)
def test_outcomes(box: Sandbox, answer: str, outcome: str, reward: float) -> None:
    verdict = score(box, answer)
    assert (verdict.outcome, verdict.reward) == (outcome, reward), verdict


INVALID = {
    "does not parse": "def price(h) return",
    "raises by mistake": "def price(h): return undefined",
    "hangs": "def price(h):\n    while True: pass",
    "takes its process down": "import os\ndef price(h): os._exit(1)",
    "depends on the clock": "import time\ndef price(h): return time.perf_counter_ns()",
    "returns a function": "def price(h): return lambda: h",
    "returns nothing": "def price(h): pass",
    "too large": "def price(h): return 'x' * 10 ** 7",
}


@pytest.fixture(scope="module")
def brief_box() -> Iterator[Sandbox]:
    """For references that run until their time is over: they keep a core busy until then."""
    with open_sandbox("auto", 1, Limits(call_seconds=0.1, total_seconds=1.0)) as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", INVALID)
def test_a_failing_reference_makes_the_task_invalid(request: pytest.FixtureRequest, name: str) -> None:
    box: Sandbox = request.getfixturevalue("brief_box" if name == "hangs" else "box")
    verdict = score(box, CODE, task(INVALID[name]))
    assert (verdict.outcome, verdict.reward, verdict.passed) == ("invalid", None, 0)
    assert "reference" in verdict.detail["why"]


def test_random_references_are_reproducible(box: Sandbox) -> None:
    code = "import random\ndef price(h): return random.random()"
    assert score(box, code, task(code)).outcome == "passed"


def test_an_exception_raised_on_purpose_is_an_expected_value(box: Sandbox) -> None:
    truth = "def price(h):\n    if h < 0:\n        raise ValueError('no')\n    return 3 * h"
    assert score(box, truth.replace("'no'", "'other'"), task(truth)).reward == 1.0
    assert score(box, CODE, task(truth)).passed == 2
    assert score(box, truth.replace("ValueError", "KeyError"), task(truth)).passed == 2


@pytest.fixture
def ran(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """Record the programs that the sandbox runs from now on."""
    taken: list[Program] = []
    watch(box, monkeypatch, taken.append)
    return taken


def test_expected_values_are_computed_once_for_each_task(box: Sandbox, ran: list[Program]) -> None:
    scorer = CodeScorer(box, "strict")
    verdicts = list(scorer.score([(task(), CODE), (task(), "x"), (task(), CODE + "\n")]))
    list(scorer.score([(task(), "y = 1\n" + CODE)]))
    assert [verdict.outcome for verdict in verdicts] == ["passed", "no_answer", "passed"]
    assert [program.source for program in ran] == [CODE, CODE, CODE + "\n", "y = 1\n" + CODE]
    assert [program.slack for program in ran] == [6.0, 1.0, 1.0, 1.0], "the first is the reference"


def test_equal_answers_run_once_unless_load_may_be_the_cause(box: Sandbox, ran: list[Program]) -> None:
    scorer = CodeScorer(box, "strict")
    other = task("def price(h): return h")
    answers = [(task(), CODE), (task(), f"{FENCE}python\n{CODE}\n{FENCE}"), (other, CODE), (task(), CODE)]
    assert [verdict.passed for verdict in scorer.score(answers)] == [3, 3, 0, 3]
    assert [program.source for program in ran if program.source == CODE] == [CODE] * 3  # one of them the reference
    ran.clear()
    hanging = "def price(h):\n    while h == 1 or {}: pass\n    return 3 * h"
    for partly, times in ((False, 2), (True, 1)):
        answers = [(task(), hanging.format(partly))] * 2
        assert [verdict.outcome for verdict in scorer.score(answers)] == ["timeout"] * 2
        assert len(ran) == times
        ran.clear()


def test_equal_tasks_with_other_names_of_tests_show_their_own(box: Sandbox) -> None:
    first = task(CODE, "price(1)")
    second = first.model_copy(update={"test_cases": {"one hour": "price(1)"}})
    verdicts = list(CodeScorer(box, "strict").score([(first, CODE), (second, CODE)]))
    assert [list(verdict.detail["tests"]) for verdict in verdicts] == [["test1"], ["one hour"]]


def test_an_answer_without_code_to_an_invalid_task_is_invalid(box: Sandbox) -> None:
    broken = task("def price(h): raise_")
    assert [verdict.outcome for verdict in CodeScorer(box, "strict").score([(broken, ""), (broken, CODE)])] == [
        "invalid"
    ] * 2


def test_verdicts_are_in_order_and_the_scorer_survives_an_early_stop(box: Sandbox) -> None:
    scorer = CodeScorer(box, "strict")
    tasks = [task(f"def price(h): return h + {i}") for i in range(6)]
    answers = [
        (tasks[i % 6], "" if i % 5 == 0 else f"def price(h): return h + {i % 6 if i % 7 else -1}\n# {i}")
        for i in range(60)
    ]
    expected = ["no_answer" if i % 5 == 0 else "passed" if i % 7 else "failed" for i in range(60)]
    stopped = scorer.score(answers)
    assert next(stopped).outcome == "no_answer"
    stopped.close()
    assert [verdict.outcome for verdict in scorer.score(answers)] == expected


def test_expected_values_outlive_the_process_and_survive_damage(
    box: Sandbox, tmp_path: Path, ran: list[Program]
) -> None:
    def programs_run() -> int:
        ran.clear()
        (verdict,) = CodeScorer(box, "strict", folder=tmp_path).score([(task(), CODE)])
        assert verdict.reward == 1.0
        return len(ran)

    assert programs_run() == 2
    assert programs_run() == 1
    (kept,) = tmp_path.iterdir()
    for damage in (b"", b"{}", kept.read_bytes().replace(b"6", b"7"), kept.read_bytes()[:-5]):
        kept.write_bytes(damage)
        assert programs_run() == 2
        assert programs_run() == 1


def test_timeouts_and_crashes_are_not_cached(box: Sandbox, tmp_path: Path) -> None:
    hanging = task("import os\ndef price(h): os._exit(1)")
    (verdict,) = CodeScorer(box, "strict", folder=tmp_path).score([(hanging, CODE)])
    assert verdict.outcome == "invalid"
    assert list(tmp_path.iterdir()) == []


def test_keys_depend_on_all_that_determines_the_values(box: Sandbox) -> None:
    keys = {References(box.limits, "strict").of(t).key for t in (task(), task(CODE + " "), task(CODE, "price(1)"))}
    assert len(keys | {References(box.limits, "upstream").of(task()).key}) == 4


def test_the_tolerance_is_configurable(box: Sandbox) -> None:
    nearly = task("def price(h): return 0.1 + 0.2")
    for tolerance, reward in ((1e-9, 1.0), (0.0, 0.0)):
        (verdict,) = CodeScorer(box, "strict", tolerance).score([(nearly, "def price(h): return 0.3")])
        assert verdict.reward == reward


TIMED = """
import datetime, random, time, uuid
def price(h):
    began = time.time()
    time.sleep(0.01)
    while time.time() - began < 0.02:
        pass
    return [began, time.strftime("%c"), datetime.datetime.now(), datetime.date.today(), random.random(), uuid.uuid4()]
"""


def test_reference_and_answer_have_the_same_clock_and_seed(box: Sandbox) -> None:
    assert score(box, TIMED, task(TIMED)).outcome == "passed"


def test_numpy_is_available_if_installed(box: Sandbox) -> None:
    pytest.importorskip("numpy")
    code = "import numpy as np\ndef price(h): return np.array([h, 2]) * np.random.rand() + np.linalg.norm([3, 4])"
    assert score(box, code, task(code)).outcome == "passed"


def test_a_hanging_call_does_not_affect_the_others(box: Sandbox) -> None:
    code = "import time\ndef price(h):\n    while h == 1: pass\n    time.sleep(0.1)\n    return 3 * h"
    assert score(box, code).passed == 2


def test_hanging_on_every_call_is_detected_after_two(box: Sandbox) -> None:
    calls = [f"price({i})" for i in range(10)]
    hanging = task(CODE, *calls)
    score(box, CODE, hanging)
    verdict = score(box, "def price(h):\n    while True: pass", hanging)
    assert verdict.outcome == "timeout"
    limits = [test["got"].rpartition("within ")[2] for test in verdict.detail["tests"].values()]
    assert Counter(limits) == {f"{box.limits.call_seconds:g} s": 2, f"{box.limits.sift_seconds:g} s": 8}


@pytest.mark.parametrize("text", FORBIDDEN_IN_PUBLISHED)
def test_each_published_filter(box: Sandbox, text: str) -> None:
    assert score(box, f"{CODE}\n# {text}", scorer="upstream").reward == 0.0
    assert score(box, f"{CODE}\n# {text}").reward == 1.0


UPSTREAM = {
    "bare": (CODE, 1.0),
    "python fence": (f"text\n{FENCE}python\n{CODE}\n{FENCE}\ntext", 1.0),
    "plain fence": (f"{FENCE}\n{CODE}\n{FENCE}", 1.0),
    "py fence": (f"{FENCE}py\n{CODE}\n{FENCE}", 0.0),
    "prose without a fence": (f"Here it is:\n{CODE}", 0.0),
    "two fences, usage first": (f"{FENCE}\n1\n{FENCE}\n{FENCE}\n{CODE}\n{FENCE}", 0.0),
    "import": ("import math\ndef price(h): return math.floor(3 * h)", 0.0),
    "import inside": ("def price(h):\n    import math\n    return math.floor(3 * h)", 1.0),
    "helper": ("def rate(): return 3\ndef price(h): return rate() * h", 0.0),
    "recursion": (AS_WRITTEN["recursion"], 0.0),
    "constant": (AS_WRITTEN["constant"], 0.0),
    "filtered text": (f"# sudo\n{CODE}", 0.0),
    "nothing": ("No answer", 0.0),
    "hangs once": ("def price(h):\n    while h == 2: pass\n    return 3 * h", 2 / 3),
}


@pytest.mark.parametrize("name", UPSTREAM)
def test_the_published_evaluator(box: Sandbox, name: str) -> None:
    answer, reward = UPSTREAM[name]
    assert score(box, answer, scorer="upstream").reward == reward


def test_in_the_published_evaluator_failed_references_count_against_the_answer(box: Sandbox) -> None:
    truth = "import math\ndef price(h): return math.floor(h)"
    assert score(box, truth, task(truth), scorer="upstream").reward == 0.0
    none = "def price(h): return None"
    assert score(box, none, task(none), scorer="upstream").reward == 0.0
    nearly = task("def price(h): return 0.1 + 0.2")
    assert score(box, "def price(h): return 0.3", nearly, scorer="upstream").reward == 0.0
    assert score(box, "def price(h): return 0.3", nearly).reward == 1.0


def test_published_extraction() -> None:
    assert published_code("```python\na\n```b```python\nc```") == "\na\n"
    assert published_code("```a```b```") == "a"
    assert published_code("import os") is None


def test_names_in_tests_are_those_that_the_reference_defines() -> None:
    truth = "RATE = 3\nclass A: pass\ndef price(h): return h\ndef helper(): pass"
    assert read_task(task(truth, "price(RATE)", "len([A()])", "not python (")).names == {"price", "RATE", "A"}


@given(st.text())
def test_extraction_accepts_any_text(text: str) -> None:
    extract_code(text, {"price"})
    extract_code(f"```\n{text}\n```\n{text}", {"price"})


@given(st.text(alphabet="abcdefghij .,!'\n"), st.text(alphabet="abcdefghij .,!'\n"))
def test_a_fence_is_found_in_any_prose(before: str, after: str) -> None:
    assert extract_code(f"{before}\n```python\n{CODE}\n```\n{after}", {"price"}) == CODE


HARD_TO_COMPILE = {
    "minus": "-" * 50_000 + "1",
    "open": "(" * 5000,
    "plus": "1+" * 40_000 + "1",
    "dots": "a." * 40_000 + "a",
    "lists": "[" * 90 + "]" * 90,
    "power": "9**9**9**9",
    "escape": "x = '\\d'",
}


@pytest.mark.parametrize("name", HARD_TO_COMPILE)
def test_code_that_is_hard_to_compile_does_no_harm(box: Sandbox, name: str) -> None:
    source = HARD_TO_COMPILE[name]
    fenced = f"{FENCE}python\n{CODE}\nx = {source}\n{FENCE}"
    verdicts = [score(box, f"{source}\n{CODE}"), score(box, fenced, scorer="upstream")]
    assert all(verdict.outcome != "crash" for verdict in verdicts)
    assert score(box, CODE).outcome == "passed"


def test_warnings_about_an_answer_are_not_shown(box: Sandbox, capfd: pytest.CaptureFixture[str]) -> None:
    """Many threads compile at once; in tests a warning is an error, and otherwise it would be shown."""
    answers = [(task(), f"# {i}\nPATTERN = '\\d'\n{CODE}") for i in range(40)]
    assert {verdict.outcome for verdict in CodeScorer(box, "strict").score(answers)} == {"passed"}
    assert capfd.readouterr().err == ""


def test_an_answer_too_long_to_be_compiled_here_is_compiled_in_its_child(box: Sandbox) -> None:
    long = f"# {'x' * 180_000}\n"  # a comment, which compiles in no time on a busy machine
    assert len(long) > LONGEST
    assert score(box, long + CODE, scorer="upstream").reward == 1.0
