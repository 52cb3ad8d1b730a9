"""Answers that are hard to read: each gets a score of 0 with the reason or is run, and harms no other; the work is
linear in the text, and none of it is done by the process that scores."""

from __future__ import annotations

import ast
import builtins
import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweet.sandbox import reader as sandbox_reader
from sweet.sandbox.pool import Sandbox
from sweet.sandbox.program import Limits, Program, Tier
from sweet.sandbox.reader import Reader, Unreadable
from sweet.sandbox.tiers import open_sandbox, probe_tier
from sweet.tasks.base import Fact, Message, Move, Task
from sweet.tasks.code import expected, extract, reading
from sweet.tasks.code import reader as code_reader
from sweet.tasks.code.credit import credit
from sweet.tasks.code.expected import Reference, Scorer
from sweet.tasks.code.extract import LONGEST, extract_code
from sweet.tasks.code.reader import read_answer
from sweet.tasks.code.scoring import CodeScorer

SCORERS: tuple[Scorer, ...] = ("strict", "upstream")
CODE = "def price(hours):\n    return 3 * hours"


def fenced(source: str) -> str:
    return f"```python\n{source}\n```"


def task(truth: str = CODE, *calls: str, facts: tuple[Fact, ...] = ()) -> Task:
    tests = {f"test{i}": call for i, call in enumerate(calls or ("price(1)", "price(2)"), 1)}
    return Task(id="t", problem_description="A price.", ground_truth=truth, test_cases=tests, facts=facts)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with open_sandbox("auto", 1) as sandbox:
        yield sandbox


def nested_finally(levels: int) -> str:
    """Each level doubles the code."""
    lines = [f"{' ' * level} try: pass\n{' ' * level} finally:\n" for level in range(levels)]
    return f"def price(h):\n{''.join(lines)}{' ' * levels}  return 3 * h"


LAMBDAS = f"x = {'lambda: ' * 1400}1\n{CODE}"
TERMS = " + ".join(["1"] * 600)
HARD = {
    "lambdas": LAMBDAS,
    "terms in a helper": f"{fenced(f'RATE = {TERMS}')}\nand\n{fenced('def price(h): return RATE * h // 200')}",
    "decorators": "@a\n" * 1990 + CODE,
    "newlines": "\n" * 99_000,
    "finally": nested_finally(17),
    "open tildes": "~" * 50_000 + "`\n" + CODE,
    "carriage returns": f"\rprice\rx.y\rprice = lambda h: 3 * h\rDone\r{CODE}",
    "minus": "x = " + "-" * 90_000 + "1\n" + CODE,
    "parentheses": "x = " + "(" * 5000 + "\n" + CODE,
    "lists": "x = " + "[" * 190 + "]" * 190 + "\n" + CODE,
    "f-strings": "x = " + "f'{" * 140 + "1" + "}'" * 140 + "\n" + CODE,
    "blocks": fenced("a = 1\n") * 5000,
    "assignments before": "a = 1\n" * 1900 + "def price(h)",
    "zero byte": f"x = '\0'\n{CODE}",
    "surrogate": f"x = '\ud800'\n{CODE}",
}


@pytest.mark.parametrize("name", HARD)
def test_an_answer_that_is_hard_to_read_ends_no_evaluation(box: Sandbox, name: str) -> None:
    answers = [(task(), CODE + "\n#"), (task(), HARD[name]), (task(), CODE)]
    for scorer in SCORERS:
        first, hard, last = CodeScorer(box, scorer).score(answers)
        assert (first.reward, last.reward) == (1.0, 1.0)
        assert hard.reward == 1.0 or hard.detail["why"]


def test_a_text_that_cannot_be_marshalled_or_unparsed_runs() -> None:
    with open_sandbox("auto", 1, Limits(call_seconds=20.0, total_seconds=40.0)) as box:
        for name in ("lambdas", "terms in a helper"):
            (verdict,) = CodeScorer(box, "strict").score([(task(), HARD[name])])
            assert verdict.reward == 1.0, name


HARD_TASKS = {
    "lambdas": task(LAMBDAS),
    "parentheses": task("(" * 5000 + CODE),
    "long": task("x = 1\n" * 300_000 + CODE),
    "calls": task(CODE, f"price({'-' * 90_000}1)", f"price({'(' * 5000}", "price(1)"),
}


@pytest.mark.parametrize("name", HARD_TASKS)
def test_a_task_that_is_hard_to_read_is_invalid_or_works(box: Sandbox, name: str) -> None:
    hard, easy = CodeScorer(box, "strict").score([(HARD_TASKS[name], CODE), (task(), CODE)])
    assert easy.reward == 1.0
    assert hard.reward == 1.0 or (hard.outcome == "invalid" and hard.detail["why"])


def test_credit_of_an_answer_that_is_hard_to_read() -> None:
    fact = Fact(topic="rate", cues=("rate",), answer="3.", line="return 3 * hours")
    seen = [Message(role="assistant", content="The rate?")]
    for text in (text for name, text in HARD.items() if name != "finally"):
        found = credit(task(facts=(fact,)), seen, Move(content="", answer=text, ends=True), last=True)
        assert found is not None
        assert found.kind in ("wrong", "full")


class Work:
    """Counts the characters that are parsed or compiled."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.characters = 0
        patch.setattr(ast, "parse", self._counted(ast.parse))
        patch.setattr(extract, "compile", self._counted(builtins.compile), raising=False)

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(source: str, *arguments: Any, **named: Any) -> Any:
            self.characters += len(source)
            return function(source, *arguments, **named)

        return counted


NASTY = st.lists(
    st.sampled_from(
        [
            *(
                "@a\n",
                "a = 1\n",
                "\n",
                "\r",
                " ",
                "\t",
                "```\n",
                "```py\n",
                "~~~~",
                "`",
                "x",
                "(",
                "'",
                '"""',
                ";",
                ":",
            ),
            *(
                "def price(h):\n",
                "price = ",
                " return 3\n",
                "import a\n",
                "class A:\n",
                "if 1:\n",
                "try:\n",
                "lambda: ",
            ),
            *("Prose, with words.\n", "\\\n", ">", "async ", "\f", "\0", "é", "#", "return\n", "not ", "f'{"),
        ]
    )
    | st.text(max_size=4),
    max_size=12,
).map("".join)


@given(st.lists(st.tuples(NASTY, st.integers(1, 300)), min_size=1, max_size=4), NASTY)
@settings(max_examples=30, deadline=None)
def test_the_work_of_extraction_is_linear_in_the_text(parts: list[tuple[str, int]], last: str) -> None:
    answer = "".join(part * times for part, times in parts)[: LONGEST // 8] + last
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work = Work(patch)
        source = extract_code(answer, {"price"})
    assert work.characters <= 40 * len(answer) + 250_000
    assert source is None or len(source) <= 2 * len(answer)


@pytest.mark.parametrize("part", ["~", "`", "\n", "@a\n", " ", "a", "```\n", "> ", "\r", "async ", "def price", "x: "])
@pytest.mark.parametrize("end", ["", "`\n", "\ndef price("])
def test_the_time_of_extraction_grows_with_the_text(part: str, end: str) -> None:
    """A hundred thousand characters take the reader less than its two seconds."""
    assert read_answer(part * (LONGEST // len(part)) + end, frozenset({"price"})) is not None


def test_the_process_that_scores_neither_parses_nor_compiles(box: Sandbox) -> None:
    events: list[str] = []
    watching = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "compile":
            events.append(str(arguments)[:200])

    sys.addaudithook(hook)  # it cannot be removed
    fact = Fact(topic="rate", cues=("rate",), answer="3.", line="return 3 * hours")
    mine = task(CODE, "price(5)", facts=(fact,))
    try:
        compile("1", "<seen>", "eval")
        assert len(events) == 1
        verdicts = [verdict for scorer in SCORERS for verdict in CodeScorer(box, scorer).score([(mine, CODE)])]
        found = credit(mine, [], Move(content="", answer=CODE, ends=True), last=True)
    finally:
        watching = False
    assert [verdict.reward for verdict in verdicts] == [1.0, 1.0]
    assert found is not None
    assert len(events) == 1, events


@pytest.fixture
def fresh() -> Iterator[Reader]:
    made = Reader(code_reader._SERVICE, in_jail=True)
    yield made
    made.close()


@contextmanager
def reading_by(expression: str, before: str = "", cpu_seconds: float = 2.0) -> Iterator[Reader]:
    """A reader that replies to `read_statements` by the value of an expression of `source`."""
    program = [
        code_reader._SERVICE,
        "import itertools, os, socket",
        "from sweet.tasks.code import reading",
        "kept = []",
        before,
        f"operations = reading.OPERATIONS | {{'read_statements': lambda source: {expression}}}",
        f"serve = lambda requests: reading.serve_operations(requests, operations, {cpu_seconds})",
    ]
    made = Reader("\n".join(program), cpu_seconds=cpu_seconds, in_jail=True)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("f(1)", ["f"]),
        ("f(g(2), h=1)", ["f", "g"]),
        ("f('text').g()", ["f"]),
        ("f(1.5e3, '.g()')", ["f"]),
        ("f(1) . g", ["f"]),
        ("(lambda: g)()", ["g"]),
        ("[f(x) for x in g()]", ["f", "g"]),
        ("f(1) if True else g(2)", ["f", "g"]),
        ("True or g(2)", ["g"]),
        ("\uff46(1)", ["f"]),
        ("f(", []),
    ],
)
def test_the_names_in_a_call_are_those_of_its_tree(call: str, names: list[str]) -> None:
    found, _ = reading.read_task("def f(*a): return a\ndef g(*a): return a\nh = 1", [call])
    assert found["names"] == names


def test_a_reader_that_was_killed_is_replaced(fresh: Reader) -> None:
    assert fresh.ask("read_answer", CODE, ["price"])[0] == CODE
    assert fresh._process is not None
    assert fresh._process.jail is not None
    os.kill(fresh._process.jail._process.pid, signal.SIGKILL)
    assert fresh.ask("read_answer", CODE, ["price"])[0] == CODE


def test_the_processor_time_of_a_text_is_limited() -> None:
    with reading_by("all(itertools.repeat(1))", cpu_seconds=0.1) as reader:
        with pytest.raises(Unreadable, match=r"more than 0\.1 s of processor time") as caught:
            reader.ask("read_statements", "x")
        assert caught.value.outcome == "timeout"
        assert reader.ask("read_answer", CODE, ["price"])[0] == CODE


def test_a_text_that_ends_its_reader_twice_is_unreadable_and_the_next_is_read() -> None:
    why = r"ends the process that reads it, by (Aborted|Segmentation fault)"
    with reading_by("os.abort()") as reader:
        with pytest.raises(Unreadable, match=why) as caught:
            reader.ask("read_statements", "x")
        assert caught.value.outcome == "crash"
        assert reader.ask("read_answer", CODE, ["price"])[0] == CODE


ENDINGS = {
    "ends the process that reads it": "os.abort()",
    "more than 512 MiB of memory": "bytes(1 << 30)",
    "ZeroDivisionError": "1 / 0",
    None: "kept.append(bytearray(b'x') * (300 << 20)) or (None, [None])",  # the process is replaced afterwards
}


@pytest.mark.parametrize("why", ENDINGS)
def test_texts_beside_a_hard_one_are_read(why: str | None) -> None:
    codes = [f"{CODE}\n# {number}" for number in range(4)]
    # No ending is one by time: to fill 600 MiB takes seconds on a machine that is short of memory.
    with reading_by(ENDINGS[why], cpu_seconds=60.0) as reader:
        assert [reader.ask("read_answer", code, ["price"])[0] for code in codes[:2]] == codes[:2]
        if why is None:
            assert reader.ask("read_statements", "x") == (None, [None])
        else:
            with pytest.raises(Unreadable, match=why):
                reader.ask("read_statements", "x")
        assert [reader.ask("read_answer", code, ["price"])[0] for code in codes[2:]] == codes[2:]


def test_of_texts_that_are_asked_together_each_has_its_own_reply() -> None:
    """More than fit into a socket's buffer, with replies that do not either, and among them some that end the process,
    take too long or make it grow."""
    hard = {"end ": "os.abort()", "grow": "(kept.append(bytes(300 << 20)), [])", "loop": "all(itertools.repeat(1))"}
    cases = " else ".join(f"{code} if source[:4] == '{name}'" for name, code in hard.items())
    texts = [f"{number:04d}" + "x" * 20_000 * (number % 3) for number in range(30)]
    for place, name in ((3, "end "), (4, "loop"), (12, "grow"), (13, "grow"), (29, "loop")):
        texts[place] = name + texts[place][4:]
    with reading_by(f"{cases} else (source, [])", cpu_seconds=0.3) as reader:
        replies = reader.ask_all([("read_statements", text) for text in texts])
    expected: dict[str, Any] = {
        "end ": "it ends the process that reads it",
        "loop": "reading it takes more than 0.3 s of processor time",
        "grow": (None, []),
    }
    found = [str(reply).split(", by")[0] if isinstance(reply, Unreadable) else reply for reply in replies]
    assert found == [expected.get(text[:4], (text, [])) for text in texts]


def test_memory_of_the_reader_is_limited_and_it_is_replaced_when_it_has_grown() -> None:
    with reading_by("(kept.append(bytes(int(source))), [])") as reader:
        with pytest.raises(Unreadable, match="more than 512 MiB of memory"):
            reader.ask("read_statements", str(1 << 30))
        reader.ask("read_statements", "1")
        assert reader._process is not None
        reader.ask("read_statements", str(300 << 20))
        assert reader._process is None


REACH = {
    "a file": "(open('/etc/passwd').read(), [])",
    "a folder": "(os.listdir('/etc'), [])",
    "a process": "(os.fork(), [])",
    "the network": "(socket.socket().fileno(), [])",
    "a new file": "(os.open('/tmp/left', os.O_CREAT | os.O_RDWR), [])",
    "its parent": "(os.kill(os.getppid() or 1, 0), [])",
}
"""What the reader could do without a jail, if a text made it execute something."""


@pytest.mark.parametrize("tier", ["bwrap", "landlock"])
def test_the_reader_is_in_a_jail(monkeypatch: pytest.MonkeyPatch, tier: Tier) -> None:
    if not probe_tier(tier).works:
        pytest.skip(f"{tier}: {probe_tier(tier).detail}")
    monkeypatch.setattr(sandbox_reader, "_TIERS", (tier,))
    outcomes = ", ".join(f"attempt(lambda: {expression})" for expression in REACH.values())
    before = "def attempt(what):\n    try: return what()[0]\n    except OSError: return 'refused'"
    with reading_by(f"([{outcomes}], [])", before) as reader:
        assert reader.ask("read_statements", "x")[0] == ["refused"] * len(REACH)
        assert reader.ask("read_answer", f"{CODE}\né = 1", ["price"])[0] == f"{CODE}\né = 1"


def tier_of(reader: Reader) -> Tier:
    assert reader.ask("read_answer", CODE, ["price"])[0] == CODE
    assert reader._process is not None
    assert reader._process.jail is not None
    return reader._process.jail.tier


def test_a_reader_starts_in_the_next_jail_where_one_is_refused(
    fresh: Reader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sandbox_reader, "_TIERS", ("bwrap", "unsafe"))
    with monkeypatch.context() as without_bwrap:
        without_bwrap.setenv("PATH", str(tmp_path))
        assert tier_of(fresh) == "unsafe"
    fresh.close()
    if probe_tier("bwrap").works:  # one failure does not weaken those that start later
        assert tier_of(fresh) == "bwrap"


def test_the_reader_ends_with_the_process_that_started_it() -> None:
    script = (
        "from sweet.tasks.code import reader\n"
        "reader.read_answer('x', frozenset())\nprint(reader._reader._process.jail._process.pid, flush=True)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    pid = int(done.stdout)
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                break
        except FileNotFoundError:
            break
        time.sleep(0.05)
    else:
        pytest.fail("the reader outlived its parent")


def test_a_forked_process_starts_its_own_reader(fresh: Reader) -> None:
    fresh.ask("read_answer", CODE, ["price"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if fresh.ask("read_answer", CODE, ["price"])[0] == CODE else 2
        finally:
            fresh.close()
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert fresh.ask("read_answer", CODE + "\n", ["price"])[0].strip() == CODE


RECORDS = """
import os, sys
def price(hours):
    if hours < 5:
        return 3 * hours
    frame = sys._getframe()
    while 'nonce' not in frame.f_locals:
        frame = frame.f_back
    for index in range(5, 60):
        text = '[' + {piece!r} * ({size} // len({piece!r})) + str(index) + ']'
        data = f"{{frame.f_locals['nonce']}} {{index}} value {{len(text)}}\\n{{text}}".encode()
        while data:
            data = data[os.write(frame.f_locals['report'], data):]
    os._exit(0)
"""
PIECES = ("{},", "[[[[]]]],", '{"a":{}},', '{"set":[]},', '"ab",', "999,", '{"int":"ffff"},')


def test_the_values_of_many_tests_take_bounded_memory_and_the_others_count() -> None:
    """Side by side, answers report long lists for 55 of 60 tests: parsed, these took 1.5 MB a test."""
    hostile = task(CODE, *(f"price({number})" for number in range(60)))
    limits = Limits(value_bytes=64 * 2**10, all_bytes=2**20)
    answers = []
    for piece in PIECES:
        answers += [(hostile, fenced(RECORDS.format(piece=piece, size=60_000))), (task(), f"{CODE}\n# {piece}")]
    with open_sandbox("auto", 4, limits) as small:
        list(CodeScorer(small, "strict").score(answers[1:2]))
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        verdicts = list(CodeScorer(small, "strict").score(answers))
    assert resident("VmHWM") - before < 60
    assert [verdict.reward for verdict in verdicts[1::2]] == [1.0] * len(PIECES)
    for verdict in verdicts[::2]:
        shown = [test["got"] for test in verdict.detail["tests"].values()]
        assert shown[59] == "<too large to report>"
        assert shown[5] != shown[59]
        assert (verdict.passed, verdict.outcome) == (5, "failed"), "by those that are right"


def resident(name: str) -> float:
    """Memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def test_values_beyond_the_memory_of_a_program_are_too_large_and_equal_ones_count_once() -> None:
    source = "def f(n): return 'x' * 30_000 + str(n)"
    with open_sandbox("auto", 1, Limits(all_bytes=100_000)) as small:
        twice, many = small.run(
            [Program(source, ("f(1)",) * 50), Program(source, (*map("f({})".format, range(9)), "7"))]
        )
    assert {len(result.text) for result in twice.results} == {30_003}
    assert 30_000 < twice.size < 50_000
    assert [result.value == {"toolarge": None} for result in many.results] == [False] * 3 + [True] * 6 + [False]
    assert many.size < 110_000


def test_answers_that_may_come_again_keep_no_values_of_their_references(
    monkeypatch: pytest.MonkeyPatch, box: Sandbox
) -> None:
    monkeypatch.setattr(expected, "_MOST_BYTES", 1)
    scorer = CodeScorer(box, "strict")
    tasks = [task(f"{CODE}\n# {number}") for number in range(5)]
    assert [verdict.reward for verdict in scorer.score((each, CODE) for each in tasks)] == [1.0] * 5
    gc.collect()
    assert not [
        each for each in gc.get_objects() if isinstance(each, Reference) and each.name[0].startswith(CODE + "\n#")
    ]
