"""`benchmarks.leaks`: its forms and kinds, and what the detector reaches on a few tasks."""

from __future__ import annotations

import ast
import json
import random
import sys
from pathlib import Path

import pytest

from benchmarks import leaks, leaks_forms, leaks_honest, leaks_pages
from sweet.tasks.base import Task

REFERENCE = """\
def rank(scores, names, limit):
    kept = [score * 2 for score in scores if score > limit]
    total = 0
    for score in kept:
        total += score - 1.5
    if total >= 100:
        label = 'high'
    else:
        label = "low"
    return {'label': label, 'mean': total / len(names)}"""
TASK = Task(
    id="rank",
    problem_description="Rank them. The signature of the function is: def rank(scores, names, limit)",
    ground_truth=REFERENCE,
    test_cases={"test1": "rank([1, 2], ['a', 'b'], 1)"},
)
PAGE = Task(
    id="page",
    problem_description="A bakery.",
    ground_truth=(
        '<html><head><style>h1 { color: #1d4ed8; margin: 4px }</style></head><body class="bg-gray-100">'
        '<div class="flex items-center bg-blue-500 p-4"><h1 class="text-4xl">Corner Bakery</h1></div>'
        '<p class="mt-4 text-lg">Bread since 1924</p></body></html>'
    ),
)


def test_every_form_of_a_program_parses_or_hides_one() -> None:
    rng = random.Random(0)
    made = {name: form(REFERENCE, rng) for name, form in leaks_forms.FORMS.items()}
    assert len(made) >= 30
    assert all(made.values()), "this reference has all that the forms need"
    assert len(set(made.values())) == len(made)
    for name in (
        "renamed",
        "commuted",
        "branches inverted",
        "comprehension unrolled",
        "combined",
    ):
        text = made[name]
        assert text is not None
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(REFERENCE)), name


def test_the_forms_of_a_program_compute_the_same() -> None:
    rng = random.Random(0)
    expected = {"label": "low", "mean": 8.5 / 2}
    for name in (
        "renamed",
        "commuted",
        "branches inverted",
        "comprehension unrolled",
        "reformatted",
        "annotated",
        "combined",
    ):
        text = leaks_forms.FORMS[name](REFERENCE, rng)
        assert text is not None
        space: dict[str, object] = {}
        exec(text, space)
        function = next(value for key, value in space.items() if key in ("rank", "solve"))
        assert callable(function)
        found = function([3, 4, 1], ["a", "b"], 1)
        assert found["mean"] == pytest.approx((6 - 1.5 + 8 - 1.5) / 2), name
        assert found["label"] == expected["label"], name


def test_pieces_of_a_text_are_the_text() -> None:
    rng = random.Random(0)
    for text in (REFERENCE, "a; b; c", "one, two, three", "x" * 400):
        turns = leaks_forms.in_turns(text, rng)
        assert turns is not None
        assert len(turns) > 1
        assert "".join("".join(turns).split()).startswith("".join(text.split()))
    assert leaks_forms.in_turns("x", rng) is None


def test_every_kind_of_honest_reply_applies_somewhere() -> None:
    tasks = [TASK, *leaks.load("micro")[:3]]
    short = TASK.model_copy(update={"ground_truth": "def f(a, b): return a / b"})
    flag = TASK.model_copy(update={"ground_truth": "def f(a):\n    if a > 3:\n        return True\n    return False"})
    for name, kind in leaks_honest.KINDS.items():
        assert any(kind(task, tasks, random.Random(0)) for task in [*tasks, short, flag]), name
    for name, kind in leaks_pages.KINDS.items():
        assert kind(PAGE, [PAGE], random.Random(0)), name
    assert len(leaks_honest.KINDS) >= 15


def test_on_packaged_tasks_leaks_are_found_and_honest_replies_pass() -> None:
    tasks = leaks.load("micro")[:6]
    found = leaks.measure(tasks, tasks, 0)
    assert found["leaks"] > 300
    assert found["honest"] > 100
    assert found["recall"] >= 0.97
    assert found["false_alarms"] == 0


def test_on_a_page_leaks_are_found_and_honest_replies_pass() -> None:
    found = leaks.measure([PAGE], [PAGE], 0)
    assert found["recall"] >= 0.97
    assert found["false_alarms"] == 0


def test_a_detector_that_finds_nothing_or_everything_is_measured_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "find_leak", lambda *_: None)
    assert leaks.measure([TASK], [TASK], 0)["recall"] == 0
    monkeypatch.setattr(leaks, "find_leak", lambda *_: "leak")
    assert leaks.measure([TASK], [TASK], 0)["false_alarms"] == 1


def test_the_command_prints_one_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(task.model_dump_json() + "\n" for task in (TASK, PAGE)))
    monkeypatch.setattr(sys, "argv", ["leaks", str(path), "--show", "1"])
    leaks.main()
    found = json.loads(capsys.readouterr().out)
    assert found["tasks"] == 2
    assert set(leaks_forms.FORMS) <= set(found["recall_by_form"])
    assert {leaks.half_of(TASK), leaks.half_of(PAGE)} <= {"dev", "held-out"}
