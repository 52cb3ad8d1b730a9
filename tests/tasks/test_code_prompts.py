"""The code task's prompts, which can be parsed back, and the parsing of replies."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import InputError
from sweet.tasks.base import Message, Task
from sweet.tasks.code.kind import CodeKind, Prompts
from sweet.tasks.kind import system_prompt
from sweet.tasks.prompts import HumanPrompt

TEXTS = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(["You:", "Programmer:", "YOUR REQUEST", "THE DIALOGUE SO FAR", "    x", "", "\r", "a: b"])
    ).map("\n".join),
)
MESSAGES = st.builds(Message, role=st.sampled_from(["user", "assistant"]), content=TEXTS)
CODE = "def price(hours):\n    return 3 * hours"


@given(st.builds(HumanPrompt, TEXTS, TEXTS, st.lists(MESSAGES).map(tuple)))
def test_a_human_prompt_reads_back_exactly(prompt: HumanPrompt) -> None:
    assert Prompts.read(Prompts.packaged().written(prompt)) == prompt


@given(st.text())
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a prompt"):
        Prompts.read(text)


def test_the_human_sees_request_hidden_information_and_dialogue_in_one_message() -> None:
    task = Task(id="t", problem_description="A price.", ground_truth=CODE, hidden_information="3 an hour")
    said = [Message(role="user", content="A price."), Message(role="assistant", content="How much?")]
    (message,) = CodeKind().human_prompt(task, said)
    assert message.role == "user"
    assert Prompts.read(message.content) == HumanPrompt("A price.", "3 an hour", tuple(said))
    assert "    How much?" in message.content


def test_the_agents_prompt_states_the_protocol() -> None:
    for word in ("I WANT TO ANSWER:", "OUTPUT:", "{turns} turns", "one short question"):
        assert word in Prompts.packaged().agent


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ("How much is it?", "How much is it?"),
        ("I wonder. OUTPUT: How much? ", "How much?"),
        ("OUTPUT: one OUTPUT: two OUTPUT: three", "one"),
        ("thought\n**OUTPUT:** Is there a cap?", "Is there a cap?"),
        ("thought **OUTPUT**: Is there a cap?", "Is there a cap?"),
        ("I could say I WANT TO ANSWER: now.\nOUTPUT: How much?", "How much?"),
    ],
)
def test_what_the_human_sees(output: str, content: str) -> None:
    move = CodeKind().move(output, last=False)
    assert (move.content, move.answer, move.ends) == (content, None, False)


@pytest.mark.parametrize(
    "marker",
    [
        "I WANT TO ANSWER:",
        "i want to answer:",
        "**I WANT TO ANSWER:**",
        "**I want to answer**:",
        "`I WANT TO ANSWER:`",
        "I WANT TO ANSWER :",
        "I WANT TO ANSWER",
    ],
)
@pytest.mark.parametrize("before", ["", "Thanks.\n", "thought OUTPUT: ", "thought\nOUTPUT:\n"])
def test_the_marker_as_models_write_it(marker: str, before: str) -> None:
    fenced = f"```python\n{CODE}\n```"
    move = CodeKind().move(f"{before}{marker}\n{fenced}\n", last=False)
    assert move.ends
    assert move.answer == fenced


def test_output_inside_delivered_code_is_code() -> None:
    code = "def f():\n    return 'OUTPUT: 1'"
    assert CodeKind().move(f"I WANT TO ANSWER:\n{code}", last=False).answer == code


def test_an_answer_ends_at_a_second_marker() -> None:
    assert CodeKind().move("I WANT TO ANSWER: a\nI want to answer: b", last=False).answer == " a"


def test_the_last_turn_is_the_answer_unchanged() -> None:
    move = CodeKind().move(CODE, last=True)
    assert (move.answer, move.ends) == (CODE, False)


@pytest.mark.parametrize(
    ("output", "last", "content", "answer", "ends"),
    [
        ("x OUTPUT: y OUTPUT: z", False, " y ", None, False),
        ("I WANT TO ANSWER: a I WANT TO ANSWER: b", False, "I WANT TO ANSWER: a I WANT TO ANSWER: b", " a ", True),
        ("i want to answer: a", False, "i want to answer: a", None, False),
        ("i want to answer: a", True, "i want to answer: a", "i want to answer: a", False),
        ("I WANT TO ANSWER:\nprint('OUTPUT: 1')", False, " 1')", None, False),
    ],
)
def test_protocol_upstream_splits_at_the_exact_markers(
    output: str, last: bool, content: str, answer: str | None, ends: bool
) -> None:
    move = CodeKind().move(output, last=last, protocol="upstream")
    assert (move.content, move.answer, move.ends) == (content, answer, ends)


def test_a_folder_replaces_one_text_or_both(tmp_path: Path) -> None:
    (tmp_path / "human.txt").write_text("Be curt.\r\n{dialogue}\n{request}\nKnow this:\n  {reference}\n")
    prompts = Prompts.of(tmp_path)
    assert prompts.agent == Prompts.packaged().agent
    text = prompts.written(HumanPrompt("A price {reference}.", CODE, (Message(role="user", content="{dialogue}"),)))
    lines = ["Be curt.", "You:", "    {dialogue}", "    A price {reference}.", "Know this:"]
    assert text.split("\n") == [*lines, *(f"    {line}" for line in CODE.split("\n"))]
    (tmp_path / "agent.txt").write_text("Ask, then answer.\n")
    assert CodeKind().with_prompts(tmp_path).agent_system() == "Ask, then answer."


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "this one contains nothing"),
        ({"humans.txt": "x"}, "this one contains humans.txt"),
        ({"agent.txt": " \n"}, "is empty"),
        ({"human.txt": "{request}\n{dialogue}"}, "must have {reference} once"),
        ({"human.txt": "a {request}\n{reference}\n{dialogue}\n{dialogue}"}, "must have {request}, {dialogue} once"),
    ],
)
def test_an_invalid_folder_is_refused(tmp_path: Path, files: dict[str, str], said: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as error:
        Prompts.of(tmp_path)
    assert said in str(error.value)
    with pytest.raises(InputError, match="cannot be read"):
        Prompts.of(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("content", "said", "fix"),
    [
        (b"caf\xe9", "The prompt is not UTF-8 text.", "save it as UTF-8"),
        (b"\xef\xbb\xbf \n", "The prompt is empty.", "write it, or remove it"),
        (b"x" * 100_001, "The prompt has more than 100,000 characters.", "a shorter one"),
        (b"x" + "é".encode() * 300_000, "The prompt has more than 100,000 characters.", "a shorter one"),
    ],
)
def test_a_prompt_that_cannot_be_used_is_refused_with_what_helps(
    tmp_path: Path, content: bytes, said: str, fix: str
) -> None:
    (tmp_path / "agent.txt").write_bytes(content)
    with pytest.raises(InputError) as error:
        Prompts.of(tmp_path)
    assert (error.value.what, error.value.fix) == (said, fix)


def test_the_mark_of_unicode_before_a_prompt_is_no_part_of_it(tmp_path: Path) -> None:
    """Windows' editors write it; before, the agent read it, and a placeholder behind it was not found."""
    (tmp_path / "human.txt").write_text("\ufeff{request}\n{reference}\n{dialogue}\n", encoding="utf-8")
    (tmp_path / "agent.txt").write_text("\ufeffAsk " + "é" * 99_996, encoding="utf-8")
    prompts = Prompts.of(tmp_path)
    assert prompts.human == "{request}\n{reference}\n{dialogue}"
    assert prompts.agent == "Ask " + "é" * 99_996


def test_the_agents_prompt_states_the_number_of_turns() -> None:
    text = system_prompt(CodeKind(), 6)
    assert "You have 6 turns." in text
    assert "{" not in text
