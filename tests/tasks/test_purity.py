"""Purity: what is accepted has the same values wherever it runs; whatever could see or leave something is refused."""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.sandbox import child, pool
from sweet.sandbox.pool import Sandbox
from sweet.sandbox.program import Batch, Limits, Program
from sweet.sandbox.tiers import open_sandbox
from sweet.tasks.base import Task
from sweet.tasks.code.purity import is_pure
from sweet.tasks.code.reader import read_task
from sweet.tasks.code.scoring import CodeScorer
from tests.tasks.recorded import watch


def pure(source: str, *calls: str) -> bool:
    return is_pure(ast.parse(source), calls or ("f(1)",))


PURE = {
    "arithmetic": "RATE = 3\ndef f(x: int) -> int:\n    'Doc.'\n    return RATE * x // 2",
    "branches and loops": """
def f(x):
    total = 0
    for i, (a, b) in enumerate(zip(range(x), [1, 2, 3])):
        if i % 2 == 0 and a is not None:
            total += a * b
        elif b in (1, 2):
            continue
        else:
            total -= 1
    while total > 10:
        total //= 2
    return total
""",
    "collections": """
def f(x):
    names = {"b": [2.5, 1], "a": [x]}
    names.setdefault("c", []).append(x)
    best = max(names, key=lambda name: len(names[name]))
    rows = sorted(names.items(), key=lambda row: row[1], reverse=True)
    first, *others = map(str, names["b"])
    return {key: sum(values) for key, values in names.items() if values}, best, rows[0], [first, *others]
""",
    "text": """
def f(x):
    words = [w.strip().lower() for w in f"One, {x:03d} two".split(",")]
    return ", ".join(sorted(words))[::-1] + "%d" % x + str(x), any(w.startswith("o") for w in words)
""",
    "sets of integers": "def f(x):\n    found = {x, 2, x + 1}\n    found.add(9)\n    return list(found), set('abc')",
    "recursion": "def g(n):\n    return 1 if n < 2 else n * g(n - 1)\ndef f(x):\n    return list(map(g, [x, 3]))",
    "exceptions": """
def f(x):
    try:
        assert x > 3, "small"
        return [1][x]
    except (IndexError, AssertionError):
        raise ValueError(f"{x}") from None
""",
    "a closure": "def f(x):\n    def add(y=2, *more, z: int = 3, **named): return x + y\n    return add(y=4)",
    "next and default": "def f(x):\n    return next((i for i in range(9) if i > x), None), min([x], default=0)",
}

IMPURE = {
    "import": "import math\ndef f(x): return x",
    "import inside": "def f(x):\n    import os\n    return x",
    "class": "class A: pass\ndef f(x): return x",
    "attribute": "def f(x): return x.real",
    "attribute of a function": "def f(x):\n    f.seen = x\n    return x",
    "dunder method": "def f(x): return x.__class__()",
    "unlisted method": "def f(x): return '{0.__init__}'.format(x)",
    "codec": "def f(x): return 'a'.encode('rot13')",
    "id": "def f(x): return id(x)",
    "hash": "def f(x): return hash(x)",
    "type": "def f(x): return str(type(x))",
    "eval": "def f(x): return eval('x')",
    "open": "def f(x): return open('a')",
    "globals": "def f(x): return globals()",
    "builtins": "def f(x): return __builtins__",
    "unknown name": "def f(x): return unknown",
    "a function as a value": "def g(x): return x\ndef f(x): return [g]",
    "a built-in function as a value": "def f(x): return {len: x}",
    "a lambda as a value": "def f(x): return str(lambda: x)",
    "a generator as a value": "def f(x): return str(i for i in [x])",
    "an iterator as a value": "def f(x): return str(zip([x]))",
    "an iterator in a set": "def f(x): return {iter([x]), iter([x])}",
    "an iterator as a start": "def f(x): return sum([], zip([x]))",
    "an iterator as a maximum": "def f(x): return max(iter([x]), iter([x]))",
    "a view in a set": "def f(x): return {x.values()}",
    "a generator function": "def f(x): yield x",
    "an exception as a value": "def f(x):\n    try: return x[0]\n    except TypeError as e: return {e}",
    "an exception made": "def f(x): return {ValueError(x)}",
    "everything caught": "def f(x):\n    try:\n        return [0] * 10**12\n    except Exception:\n        return 1",
    "bare except": "def f(x):\n    try:\n        return [0] * 10**12\n    except:\n        return 1",
    "finally": "def f(x):\n    try:\n        return [0] * 10**12\n    finally:\n        return 1",
    "identity": "def f(x): return x + 1000 is 1001",
    "sets with a NaN": "def f(x):\n    i = 1e308 * 10\n    return list({i - i, x})",
    "sets with float": "def f(x): return set([float('nan'), x])",
    "sets with division": "def f(x): return {x / 3}",
    "a built-in name assigned": "def f(x):\n    len = x\n    return len",
    "a built-in name that another function assigns": "def g(id):\n    return id\ndef f(x): return {id}",
    "a built-in name deleted": "del __builtins__\ndef f(x): return x",
    "a variable called": "def f(x): return x(1)",
    "a function called through another": "def f(x): return (f if x else f)(1)",
    "decorator": "@print\ndef f(x): return x",
    "annotation": "def f(x: print(1)): return x",
    "async": "async def f(x): return x",
    "with": "def f(x):\n    with x: return 1",
    "match": "def f(x):\n    match x:\n        case len: return len",
    "matrix product": "def f(x): return x @ x",
    "star import": "from math import *\ndef f(x): return x",
    "print": "def f(x): print(x)",
}


@pytest.mark.parametrize("name", PURE)
def test_ordinary_programs_are_pure(name: str) -> None:
    assert pure(PURE[name])


@pytest.mark.parametrize("name", IMPURE)
def test_what_could_see_or_leave_something_is_refused(name: str) -> None:
    assert not pure(IMPURE[name])


@pytest.mark.parametrize("call", ["f(lambda: 1)", "f(print)", "f(id(1))", "f((i for i in [1]))", "f.__code__"])
def test_calls_are_checked_as_well(call: str) -> None:
    assert not pure(PURE["arithmetic"], "f(1)", call)


def test_sets_in_the_program_and_floats_in_a_call_are_refused_together() -> None:
    assert not pure(PURE["sets of integers"], "f(0.5)")


_PARTS = st.sampled_from(
    ["x", "7", "'ab'", "None", "0.5", "1e308", "f", "g", "len", "ValueError", "y", "id", "range(3)", "[]"]
)
_WRITTEN = st.recursive(
    _PARTS,
    lambda inner: st.builds(
        lambda form, *parts: form.format(*parts),
        st.sampled_from(
            [
                *("{0} + {1}", "{0} * {1}", "[{0}, {1}]", "{{{0}, {1}}}", "({0}, {1})", "{{{0}: {1}}}", "str({0})"),
                *("list({0})", "set({0})", "sorted({0}, key={1})", "list(map({0}, {1}))", "zip({0}, {1})", "iter({0})"),
                *(
                    "{0}({1})",
                    "{0} is {1}",
                    "{0} in {1}",
                    "{0}.values()",
                    "{0}[{1}]",
                    "(lambda y: {0})",
                    "f'{{{0}!r}}'",
                ),
                *("[{0} for y in {1}]", "({0} for y in {1})", "{{{0} for y in {1}}}", "sum({0}, {1})", "max({0}, {1})"),
                *("{0} - {1}", "{0} / ({1})", "repr({0})", "next(iter({0}), {1})", "{0}.get({1}, {0})"),
            ]
        ),
        inner,
        inner,
    ),
    max_leaves=6,
)


@given(_WRITTEN, _WRITTEN)
def test_the_values_of_pure_programs_do_not_depend_on_addresses(first: str, second: str) -> None:
    source = f"def g(x):\n    y = {first}\n    return y\ndef f(x):\n    y = g(x)\n    return {second}"
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    if not is_pure(tree, ["f(2)"]):
        return
    before = dict(vars(builtins))
    kept: list[Any] = []
    values = set()
    for size in range(4):
        kept.append([object() for _ in range(50 * size + 1)])  # other addresses
        names: dict[str, Any] = {}
        with warnings.catch_warnings(action="ignore"):  # about `7[x]`
            exec(compile(tree, "<program>", "exec"), names)
        try:
            values.add(child.encode(names["f"](2), 1 << 16))
        except (Exception, RecursionError) as error:
            values.add(f"{type(error).__name__} {error}")
    assert len(values) == 1
    assert vars(builtins) == before


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    limits = Limits(call_seconds=60.0, total_seconds=60.0, memory_bytes=256 * 2**20)
    with open_sandbox("auto", 1, limits) as sandbox:
        yield sandbox


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a batch may take long."""
    monkeypatch.setattr(pool, "_BATCH_SECONDS", 60.0)


SHARED = [*(PURE[name] for name in PURE if name != "exceptions")]
HANGS = "def f(x):\n    while True:\n        pass"
LACKING = {
    "needs memory": "def f(x): return [0] * 10**12",
    "recurses": "def f(x): return f(x + 1)",
    "nests deeply": "def f(x):\n    y = []\n    for i in range(200000):\n        y = [y]\n    return y == [[y]]",
}


@pytest.mark.usefixtures("patient")
def test_a_batch_has_the_results_of_its_programs_each_run_alone(box: Sandbox) -> None:
    programs = [Program(source, ("f(1)", "f(2)", "f(None)")) for source in SHARED]
    (together,) = box.run([Batch(tuple(programs))])
    alone = [execution.results for execution in box.run(programs)]
    assert together.results == tuple(result for results in alone for result in results)
    assert together.size > 0
    assert not together.again


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("name", LACKING)
def test_programs_that_may_lack_something_in_a_batch_are_left_to_run_alone(box: Sandbox, name: str) -> None:
    programs = tuple(Program(source, ("f(1)",)) for source in (SHARED[0], LACKING[name], SHARED[1]))
    (together,) = box.run([Batch(programs)])
    assert together.again == programs[1:2]
    assert len(together.results) == 2


def test_a_program_that_hangs_in_a_batch_is_left_to_run_alone_with_those_after_it(box: Sandbox) -> None:
    programs = tuple(Program(source, ("f(1)",)) for source in (SHARED[0], HANGS, SHARED[1]))
    (together,) = box.run([Batch(programs)])
    assert together.again[-2:] == programs[1:]
    assert len(together.results) == 3 - len(together.again)


@pytest.mark.usefixtures("patient")
def test_the_programs_of_a_batch_share_a_child(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[Any] = []
    (worker,) = box._workers
    start = worker._child

    def noted(*given: Any) -> Any:
        children.append(given)
        return start(*given)

    monkeypatch.setattr(worker, "_child", noted)
    box.run([Batch(tuple(Program(source, ("f(1)",)) for source in SHARED))])
    assert len(children) == 1


def test_references_that_are_pure_run_once_and_together(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = "def f(x):\n    return [0] * 10**12 if x == 1 else x"
    sources = [*SHARED, lacking, "import math\ndef f(x): return math.floor(x)"]
    tasks = [
        Task(id=f"t{i}", problem_description="A function.", ground_truth=source, test_cases={"a": "f(1)", "b": "f(3)"})
        for i, source in enumerate(sources)
    ]
    assert [read_task(task).pure for task in tasks] == [True] * (len(SHARED) + 1) + [False]
    ran: list[Program | Batch] = []
    watch(box, monkeypatch, ran.append)
    verdicts = list(CodeScorer(box, "strict").score([(task, task.ground_truth) for task in tasks]))
    assert [verdict.outcome for verdict in verdicts] == ["passed"] * len(SHARED) + ["invalid", "passed"]
    (batch,) = [each for each in ran if isinstance(each, Batch)]
    assert [program.source for program in batch.programs] == sources[:-1]
    assert {len(program.calls) for program in batch.programs} == {2}
    alone = [each for each in ran if isinstance(each, Program)]
    assert {each.slack for each in alone if each.source == lacking} == {1.0, 3.0}, "the answer, and the reference again"
    assert [len(each.calls) for each in alone if "math" in each.source] == [4, 2], "every call twice"
