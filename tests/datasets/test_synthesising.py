"""`sweet data synthesise` with a real server: what is kept, what is asked again, what is listed, and resuming."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from sweet.datasets.checking import DataCheckConfig, run_data_check
from sweet.datasets.synthesising import SynthesiseConfig, read_topics, run_data_synthesise, sections_of, task_of
from sweet.errors import InputError, Interrupted
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.tasks.code.reader import mutants_of
from tests.stages.chat_server import ChatServer, refused, said
from tests.stages.heard import Heard

MODEL = "inventor"

FEE = """\
def fee(hours):
    total = 3 * hours
    if hours >= 10:
        total = 2 * total + 1
    return total"""
FEE_CALLS = ("fee(0)", "fee(1)", "fee(2)", "fee(9)", "fee(10)", "fee(11)")


def proposal(reference: str = FEE, calls: tuple[str, ...] = FEE_CALLS, answer: str = "Each hour costs 3.") -> str:
    listed = "\n".join(f"- `{call}`" for call in calls)
    signature = next(line for line in reference.splitlines() if line.startswith("def ")).rstrip(":")
    return (
        f"Here it is.\n## Request\nI need a fee for parking.\n\n## signature\n`{signature}`\n"
        f"## details\n- rate | rate, hour | {answer}\n- long | long, limit | From ten hours on it doubles, plus 1.\n"
        f"## reference\n```python\n{reference}\n```\n## Tests:\n{listed}\n"
    )


def other(name: str, number: int) -> str:
    """A good task that is unlike the others: its statements have other numbers."""
    reference = (
        f"def {name}(n):\n    if n > {number}:\n        n -= {number + 2}\n    return {number} * n - {number + 1}"
    )
    return proposal(reference, tuple(f"{name}({number + step})" for step in (-2, -1, 0, 1, 2)))


class Inventor:
    """Proposes tasks.

    Args:
        scripts: by topic, its replies one after the other, the last one for ever; without one a good task of its own.

    Attributes:
        bodies: what it was asked, by topic.
    """

    def __init__(self, scripts: dict[str, list[str | Response]] | None = None) -> None:
        self.scripts = scripts or {}
        self.bodies: list[tuple[str, list[dict[str, str]]]] = []
        self.asked: Counter[str] = Counter()

    def __call__(self, body: dict[str, Any]) -> Response:
        topic = re.search(r"THE TOPIC\n    (.*)\n", body["messages"][0]["content"])[1]  # type: ignore[index]
        self.bodies.append((topic, body["messages"]))
        number = self.asked[topic]
        self.asked[topic] += 1
        script = self.scripts.get(topic) or [other(f"f{number}", 10 * number + 20 + sum(map(ord, topic)) % 89)]
        reply = script[min(number, len(script) - 1)]
        return reply if isinstance(reply, Response) else said(reply)

    def told(self, topic: str) -> list[str]:
        """What the model was told after its replies on a topic."""
        return [messages[-1]["content"] for of, messages in self.bodies if of == topic and len(messages) > 1]


def topics(folder: Path, *names: str) -> Path:
    file = folder / "topics.txt"
    file.write_text("\n".join(names) + "\n")
    return file


def made(file: Path, inventor: Inventor, reporter: Silent | None = None, **changes: Any) -> Any:
    with ChatServer(MODEL, inventor).running() as url:
        config = SynthesiseConfig(**{"model": MODEL, "url": [url], "sandbox": "unsafe", "workers": 2, **changes})
        return run_data_synthesise(str(file), config, reporter or Silent()).metrics


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


BAD: dict[str, tuple[str, str]] = {
    "refused": ("I'd rather not.", "there is no section request"),
    "no signature": (proposal().replace("`def fee(hours)`", "fee"), "it needs a signature"),
    "other signature": (proposal().replace("`def fee(hours)`", "def fee(days)"), "does not begin with the signature"),
    "no form": (proposal().replace(" | rate, hour | ", ": "), "not of the form name | words | answer"),
    "not running": (proposal(FEE.replace("total + 1", "totl")), "the reference fails on fee(10): NameError"),
    "no Python": (proposal(calls=("assert fee(1) == 3", "fee(2)")), "the test 'test1' is not a Python expression"),
    "random": (proposal(f"import random\n{FEE} * random.random()"), "returns another value"),
    "slow": (proposal(FEE.replace("3 *", "__import__('time').sleep(0.6) or 3 *"), ("fee(1)", "fee(20)")), "takes 0.6"),
    "constant": (proposal(calls=("fee(1)", "fee(1.0)")), "all 2 tests expect the same value"),
    "source told": (proposal(answer=FEE.replace("\n", " ; ")), "the details contain source"),
    "source asked": (proposal().replace("I need a fee", f"I need {FEE}"), "the request contains 4 of the 4 lines"),
}


def test_what_is_bad_is_told_why_and_the_rest_is_a_file_that_every_command_takes(tmp_path: Path) -> None:
    good = {topic: other("after", 100 + 7 * number) for number, topic in enumerate(BAD)}
    inventor, heard = Inventor({topic: [bad, good[topic]] for topic, (bad, _) in BAD.items()}), Heard()
    file = topics(tmp_path, *BAD, "parking")
    inventor.scripts["parking"] = [proposal(calls=("fee(1)", "fee(2)")), "## tests\nfee(9)\nfee(10)\nfee(11)\nfee(12)"]
    metrics = made(file, inventor, heard)
    assert (metrics.tasks, metrics.written, metrics.failed, metrics.tries) == (12, 12, 0, 24)
    for topic, (_, why) in BAD.items():
        (told,) = inventor.told(topic)
        assert why in told, topic
    (weak,) = inventor.told("parking")
    assert "`if hours >= 10:` became `if hours > 10:`" in weak
    out = tmp_path / "topics-tasks.jsonl"
    written = {row["id"]: row for row in rows(out)}
    assert list(written) == [f"{topic.replace(' ', '-').lower()}-1" for topic in (*BAD, "parking")]
    assert written["parking-1"] == {
        "id": "parking-1",
        "problem_description": "I need a fee for parking.\nThe signature of the function is: def fee(hours)",
        "ground_truth": FEE,
        "test_cases": {f"test{n}": f"fee({hours})" for n, hours in enumerate((1, 2, 9, 10, 11, 12), 1)},
        "facts": [
            {"topic": "rate", "cues": ["rate", "hour"], "answer": "Each hour costs 3."},
            {"topic": "long", "cues": ["long", "limit"], "answer": "From ten hours on it doubles, plus 1."},
        ],
        "written_by": MODEL,
    }
    assert 0.8 * metrics.mutants <= metrics.killed <= metrics.mutants

    checked = run_data_check(str(out), DataCheckConfig(sandbox="unsafe"), Silent()).metrics
    assert (checked.tasks, checked.findings) == (12, [])
    run = Run.create(tmp_path / "run", task="code")

    def answers(body: dict[str, Any]) -> Response:
        is_first = len(body["messages"]) == 2
        return said("What does an hour cost?" if is_first else f"I WANT TO ANSWER:\n```python\n{FEE}\n```")

    with ChatServer("agent", answers).running() as url:
        config = RolloutConfig(tasks=str(out), agent="agent", agent_url=[url], max_turns=3, holdout=0.5, split="test")
        run_rollout(run, config, Silent())
    lines = [row for file in (run.path / "rollouts").glob("*.jsonl") for row in rows(file)]
    assert {row["dialogue_history"][2]["content"] for row in lines} == {"Each hour costs 3."}
    rate = run_eval(run, EvalConfig(sandbox="unsafe"), Silent()).metrics.as_json()["success_rate"]
    assert rate == sum(row["task"]["id"] == "parking-1" for row in lines) / len(lines)


def test_what_stays_bad_is_listed_with_its_reason_and_tried_again_by_the_next_call(tmp_path: Path) -> None:
    renamed = proposal(re.sub(r"\bhours\b", "time", FEE).replace("total", "sum_").replace("fee", "cost"), ("cost(1)",))
    scripts: dict[str, list[str | Response]] = {
        "copied": [renamed],
        "weak": [other("w", 3).replace("w(4)", "w(3)").replace("w(5)", "w(2)")],
        "silent": [""],
        "gone": [refused(400, "no")],
    }
    file, heard, out = topics(tmp_path, *scripts), Heard(), tmp_path / "out.jsonl"
    own = task_of(sections_of(proposal()), "mine", "me")
    out.write_text(own.model_dump_json() + "\n")
    metrics = made(file, Inventor(scripts), heard, tries=2, out=out)
    found = {one.task: (one.problem, one.what) for one in metrics.failures}
    assert found["copied-1"] == ("duplicate", "its reference is nearly that of mine")
    assert found["weak-1"][0] == "weak"
    assert re.fullmatch(r"its tests kill \d of \d+ mutants of the reference", found["weak-1"][1])
    assert found["silent-1"][0] == "unreadable"
    assert found["gone-1"][0] == "request"
    assert (metrics.tasks, metrics.written, metrics.failed, metrics.tries) == (1, 0, 4, 7)
    assert sum(metrics.reasons.values()) == 3, "the commonest"
    assert [row["id"] for row in rows(out)] == ["mine"], "the tasks of the file stay"

    metrics = made(file, Inventor(), heard, num_tasks=6, out=out)
    assert (metrics.tasks, metrics.written, metrics.kept, metrics.failed) == (7, 6, 0, 0)
    assert [row["id"] for row in rows(out)] == [
        "mine",
        "copied-1",
        "weak-1",
        "silent-1",
        "gone-1",
        "copied-2",
        "weak-2",
    ]
    inventor = Inventor({"silent": [other("late", 7)]})
    assert made(file, inventor, heard, num_tasks=7, out=out).kept == 6
    ((_, messages),) = inventor.bodies
    assert re.search(r"EXIST ALREADY\n    f\d+\n", messages[0]["content"]), "it is told which functions there are"


def test_a_call_that_cost_too_much_or_was_killed_goes_on_and_asks_for_nothing_again(tmp_path: Path) -> None:
    """An answer costs 1. The failure of topic 1 is known too when the work goes on."""
    names = [f"topic {number}" for number in range(6)]
    file, prices, part = topics(tmp_path, *names), tmp_path / "prices.toml", tmp_path / "topics-tasks.jsonl.part"
    prices.write_text("[writer]\nprompt = 100000\n")
    inventor = Inventor({"topic 1": ["no"]})
    options: dict[str, Any] = {"prices": prices, "concurrency": 1, "tries": 1}
    with pytest.raises(Interrupted, match=r"the limit is 3\. Done: 3 tasks; missing: 3"):
        made(file, inventor, max_cost=3, **options)
    assert len(rows(part)) == 3
    with part.open("ab") as journal:
        journal.write(b'{"id":"topic-4')  # a torn line, as a kill may leave it
    metrics = made(file, inventor, max_cost=100, **options)
    assert [topic for topic, _ in inventor.bodies] == names
    assert (metrics.kept, metrics.written, metrics.failed, metrics.cost) == (2, 3, 1, 6.0)
    assert [one.task for one in metrics.failures] == ["topic-1-1"]
    assert sorted(one.name for one in tmp_path.glob("topics-*")) == ["topics-tasks.jsonl"]
    assert len(rows(tmp_path / "topics-tasks.jsonl")) == 5
    made(file, Inventor(), **options)
    assert len(rows(tmp_path / "topics-tasks.jsonl")) == 6, "what failed is tried again by the next call"


def test_text_of_a_model_runs_in_the_sandbox_alone(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    calls = (f"open({str(mark)!r}, 'w') and fee(1)", "fee(2)")
    (failure,) = made(
        topics(tmp_path, "files"),
        Inventor({"files": [proposal(f"open({str(mark)!r}, 'w')\n{FEE}\n", calls)]}),
        sandbox="auto",
        tries=1,
    ).failures
    assert failure.problem == "invalid"
    assert "the reference fails" in failure.what
    assert not mark.exists()


@pytest.mark.parametrize(
    ("text", "why"), [("", "has no topic"), ("a b\nA-b", "is there twice"), ("...", "has no word"), ("x" * 300, "long")]
)
def test_topics_are_checked(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_topics(topics(tmp_path, text))


def test_a_mutant_differs_in_one_place_that_tests_can_see() -> None:
    source = (
        'def f(n: int, by=2) -> "int":\n    """Text."""\n    if n < 0 and not by:\n        raise ValueError("no")\n'
        "    n += by\n    return f'{n:>3}' if n in (4, 5) else -n\n"
    )
    first, test, addition = "def f(n: int, by=2) -> 'int':", "if n < 0 and (not by):", "n += by"
    last = "return f'{n:>3}' if n in (4, 5) else -n"
    changes = [
        (first, first.replace("2", "3")),
        (test, "pass"),
        (test, "if not (n < 0 and (not by)):"),
        (test, test.replace("and (not by)", "or not by")),
        (test, test.replace("<", "<=")),
        (test, test.replace("0", "1")),
        (test, test.replace("(not by)", "by")),
        (addition, "pass"),
        (addition, "n -= by"),
        (last, "pass"),
        (last, last.replace("n in", "n not in")),
        (last, last.replace("4", "5")),
        (last, last.replace("5", "6")),
        (last, last.replace("-n", "n")),
    ]
    assert [change for change, _ in mutants_of(source)] == [f"`{old}` became `{new}`" for old, new in changes]
    assert len({text for _, text in mutants_of(source)}) == len(changes)
    many = mutants_of("\n".join(f"a{number} = {number} < {number}" for number in range(100)))
    assert (len(many), many[-1][0][:6]) == (40, "`a97 =")
