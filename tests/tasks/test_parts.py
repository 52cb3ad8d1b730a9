"""Answers that are built in parts: what counts, what the human says, what a reply is worth, and that a line which was
sent too early costs the task, in real tests in the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import InputError
from sweet.humans.personas import packaged
from sweet.humans.scripted import STYLES, ScriptedHuman
from sweet.rollouts.dialogue import Assignment, Dialogue, Rules
from sweet.sandbox.tiers import open_sandbox
from sweet.tasks.base import Message, Task
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.code.scoring import CodeScorer
from sweet.tasks.files import load_task_file
from sweet.tasks.micro.family import PARTS
from sweet.tasks.micro.generator import load
from sweet.tasks.micro.rules import BY_NAME
from sweet.tasks.parts import NOTED, assembled, part_of, parts_of, share_of, undelivered
from sweet.tasks.trajectory import Trajectory
from tests.rollouts.test_dialogue import Lines

KIND = CodeKind()
SOURCE = "def fee(n):\n    n = max(n - 2, 0)\n    x = n * 3\n    x = x + 7\n    return x"
HEAD, FREE, RATE, FIXED, END = SOURCE.split("\n")
TASK = Task.model_validate(
    {
        "id": "fee",
        "problem_description": "I need a fee. The rate is 3. def fee(n)",
        "ground_truth": SOURCE,
        "test_cases": {"a": "fee(1)", "b": "fee(5)"},
        "facts": [
            {"topic": "free", "cues": ["free"], "answer": "2 are free.", "line": FREE.strip()},
            {"topic": "fixed", "cues": ["fixed"], "answer": "It is 7 more.", "line": FIXED.strip()},
        ],
        "part_lines": 2,
    }
)
WHOLE = TASK.model_copy(update={"part_lines": 0})
ASK_FREE, ASK_FIXED = "How much is free?", "What is fixed?"


def part(*lines: str) -> str:
    return "\n".join(["PART:", *lines])


def final(*lines: str) -> str:
    return "\n".join(["I WANT TO ANSWER:", *lines])


def said(*replies: str) -> list[Message]:
    """Return a dialogue in which the agent says the replies."""
    dialogue = [Message(role="user", content=TASK.problem_description)]
    for reply in replies:
        dialogue.append(Message(role="assistant", content=reply))
        dialogue.append(Message(role="user", content=KIND.scripted_reply(TASK, dialogue)))
    return dialogue


def play(task: Task, *replies: str, turns: int = 20) -> Trajectory:
    rules = Rules(max_turns=turns, temperature=1.0, top_p=1.0, max_tokens=64, protocol="paper")
    return asyncio.run(Dialogue(Assignment(task, 0, 3), Lines(*replies), ScriptedHuman(KIND), KIND, rules).play())


def test_the_answer_is_all_parts_and_the_last_reply() -> None:
    trajectory = play(TASK, part(HEAD, FREE), ASK_FIXED, part(RATE), part(FIXED), final(END))
    assert trajectory.answer == SOURCE
    heard = [turn.content for turn in trajectory.dialogue_history if turn.role == "user"]
    assert heard[1:] == [NOTED, "It is 7 more.", NOTED, NOTED]


@pytest.mark.parametrize("last", [final(FIXED, END), part(FIXED, END)])
def test_the_last_turn_delivers_with_either_marker(last: str) -> None:
    assert play(TASK, part(HEAD, FREE), part(RATE), last, turns=3).answer == SOURCE


def test_of_each_reply_only_the_first_lines_count() -> None:
    assert play(TASK, final(SOURCE)).answer == f"{HEAD}\n{FREE}"
    assert play(TASK, part(SOURCE), final(RATE, FIXED, END)).answer == "\n".join([HEAD, FREE, RATE, FIXED])


def test_fences_and_empty_lines_do_not_count() -> None:
    fenced = f"PART:\n\n```python\n{HEAD}\n{FREE}\n```"
    assert play(TASK, fenced, part(RATE, "", FIXED), f"I WANT TO ANSWER:\n~~~\n{END}\n~~~").answer == SOURCE


def test_without_part_lines_nothing_is_a_part() -> None:
    trajectory = play(WHOLE, part(HEAD, FREE), final(SOURCE))
    assert trajectory.answer == SOURCE
    assert trajectory.dialogue_history[2].content == "I do not know."


def test_a_marker_inside_a_reply_is_no_part() -> None:
    assert part_of(TASK, f"Is this right? {part(FREE)}") is None
    assert part_of(TASK, f" \n{part(FREE)}") == FREE


@given(st.lists(st.sampled_from([part(HEAD, FREE), part(RATE), part(), part("", FIXED), ASK_FREE, ""])), st.text())
def test_what_was_sent_stays_whatever_comes_after(replies: list[str], answer: str) -> None:
    dialogue = said(*replies)
    sent = parts_of(TASK, dialogue)
    assert len(sent) == sum(1 for reply in replies if part_of(TASK, reply))
    whole = assembled(TASK, dialogue, answer)
    assert whole.startswith("\n".join(sent))
    assert whole.count("\n") < 2 * (len(sent) + 1)
    assert assembled(WHOLE, dialogue, answer) == answer


@pytest.mark.parametrize("name", STYLES)
def test_every_persona_notes_a_part_without_a_word_on_whether_it_is_right(name: str) -> None:
    human = ScriptedHuman(KIND, packaged()[name])
    replies = []
    for line in (FREE, FREE.replace("2", "5"), "free fixed rate"):
        dialogue = [Message(role="user", content="?"), Message(role="assistant", content=part(line))]
        replies.append(asyncio.run(human.reply(TASK, dialogue)).text)
    assert all(NOTED in reply or name == "unsure" for reply in replies)
    assert not any(character.isdigit() for reply in replies for character in reply)


def kind_of(asked: Sequence[str], reply: str, *, last: bool = False) -> str:
    found = KIND.credit(TASK, said(*asked), reply, last=last)
    assert found is not None
    return found.kind


OPENED = (ASK_FREE, part(HEAD, FREE))


@pytest.mark.parametrize(
    ("before", "reply", "expected"),
    [
        ((ASK_FREE,), part(HEAD, FREE), "part"),
        ((ASK_FREE,), part(HEAD), "part"),
        ((ASK_FREE,), part(HEAD, FREE.replace(" - ", "-")), "part"),
        ((), part(HEAD, FREE), "early part"),
        ((), part(HEAD, RATE), "early part"),
        ((ASK_FREE,), part(HEAD, RATE), "wrong part"),
        ((ASK_FREE,), part(HEAD, FREE.replace("2", "3")), "wrong part"),
        ((ASK_FREE,), part("no code"), "wrong part"),
        ((ASK_FREE,), part(), "wrong part"),
        (OPENED, part(RATE), "part"),
        (OPENED, part(FIXED), "early part"),
        ((*OPENED, ASK_FIXED), part(FIXED), "wrong part"),
        ((*OPENED, ASK_FIXED), part(RATE, FIXED), "part"),
        (OPENED, part(RATE, FIXED), "early part"),
        ((*OPENED, part(RATE)), ASK_FIXED, "useful"),
        ((*OPENED, part(RATE)), final(END), "early"),
        ((*OPENED, part(RATE), ASK_FIXED), final(FIXED, END), "full"),
        ((*OPENED, part(RATE), ASK_FIXED), final(END), "wrong"),
        ((part(HEAD, RATE),), ASK_FREE, "lost"),
        ((part(HEAD, RATE), ASK_FREE), part(FREE), "lost"),
        ((part("nonsense"),), final(SOURCE), "lost"),
    ],
)
def test_what_a_reply_is_worth(before: tuple[str, ...], reply: str, expected: str) -> None:
    assert kind_of(before, reply) == expected


def test_on_the_last_turn_what_is_known_is_partly_right() -> None:
    assert kind_of((*OPENED, part(RATE)), final(END), last=True) == "partial"
    assert kind_of((*OPENED, part(RATE)), final(FIXED.replace("7", "8"), END), last=True) == "wrong"


@given(st.lists(st.text(max_size=30), max_size=3), st.text(max_size=60), st.booleans())
def test_any_reply_has_a_worth(before: list[str], reply: str, last: bool) -> None:
    assert kind_of([part(text) for text in before], reply, last=last)
    assert kind_of([], part(reply), last=last)


def questions(task: Task) -> list[str]:
    return [BY_NAME[fact.topic].question for fact in task.facts]


def parts(lines: Sequence[str]) -> list[str]:
    """Return the lines of a function as parts, the signature with the first line, and the end as the answer."""
    first, second, *middle, end = lines
    return [part(first, second), *(part(line) for line in middle), final(end)]


def worths(task: Task, trajectory: Trajectory) -> list[str]:
    """Return the kind of each reply in a dialogue."""
    history = trajectory.dialogue_history
    found = []
    for index, turn in enumerate(history):
        if turn.role == "assistant":
            credit = KIND.credit(
                task, [Message(role=t.role, content=t.content) for t in history[:index]], turn.said, last=False
            )
            assert credit is not None
            found.append(credit.kind)
    return found


def test_asking_first_passes_the_tests_and_a_line_before_its_question_fails_them() -> None:
    good, bad = [], []
    tasks = [task for task in load("validation", PARTS) if _first_is_unstated(task)][:30]
    assert len(tasks) == 30
    for task in tasks:
        lines = task.ground_truth.split("\n")
        right = play(task, *questions(task), *parts(lines))
        assert worths(task, right) == ["useful"] * 6 + ["part"] * 7 + ["full"]
        good.append((task, right.answer))
        # The line that the request gives away is sent at once; the question for the first line comes second.
        rate = next(line for line in lines if line.startswith("    x = "))
        first, *others = [line for line in lines[1:-1] if line != rate]
        asked = questions(task)
        wrong = play(
            task, part(lines[0], rate), asked[0], part(first), *asked[1:], *map(part, others), final(lines[-1])
        )
        assert worths(task, wrong) == ["early part"] + ["lost"] * 13
        assert all(turn.content in (NOTED, *(f.answer for f in task.facts)) for turn in wrong.dialogue_history[2::2])
        bad.append((task, wrong.answer))
    with open_sandbox("auto", 1) as box:
        outcomes = [verdict.outcome for verdict in CodeScorer(box, "strict").score([*good, *bad])]
    assert outcomes[:30] == ["passed"] * 30
    assert outcomes[30:].count("failed") >= 28, "two of thirty orders may give the same prices"


def _first_is_unstated(task: Task) -> bool:
    """Return whether a line that has to be asked for stands above that of the rate."""
    return not task.ground_truth.split("\n")[1].startswith("    x = ")


def test_a_file_names_the_lines_of_a_part(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(TASK.model_dump_json() + "\n")
    (task,) = load_task_file(file, KIND.fields)
    assert task == TASK
    assert task.part_lines == 2


@pytest.mark.parametrize("value", ["0", "-1", "true", '"2"', "1.5"])
def test_a_wrong_number_of_lines_is_refused(tmp_path: Path, value: str) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(TASK.model_dump_json().replace('"part_lines":2', f'"part_lines":{value}') + "\n")
    with pytest.raises(InputError, match="'part_lines' must be a whole number above 0"):
        load_task_file(file, KIND.fields)


def test_a_part_that_mentions_a_fact_does_not_ask_for_it() -> None:
    assert said(part(f"{FREE}  # free, fixed"))[-1].content == NOTED


@given(delivered=st.lists(st.sampled_from(["a = 1", "b = 2", "c = 3", "other"]), max_size=5))
def test_what_is_not_delivered_keeps_its_order(delivered: list[str]) -> None:
    task = TASK.model_copy(update={"ground_truth": "a = 1\nb = 2\n\na = 1\nc = 3\n"})
    left = undelivered(task, ["\n".join(delivered)]).split("\n")
    whole = ["a = 1", "b = 2", "a = 1", "c = 3"]
    for line in set(whole):
        assert left.count(line) == max(0, whole.count(line) - delivered.count(line))
    places = iter(whole)
    assert all(line in places for line in left if line), "a subsequence of the reference"
    assert share_of(task, "a = 1\n\nb = 2") == 0.5
