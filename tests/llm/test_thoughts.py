"""What a model thought and what it said are separated, whatever the reply contains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.llm.base import Reply
from sweet.llm.thoughts import (
    ALL_MARKS,
    BRACKETS,
    CHANNELS,
    TAGS,
    Marks,
    Parts,
    count_leading,
    given_marks,
    opened_by,
    separate,
    separate_ids,
    without_thought,
)
from sweet.tasks.markers import ANSWER_MARKER, OUTPUT_MARKER, read_move

PIECES = st.sampled_from(
    [
        *(mark for marks in ALL_MARKS for mark in (marks.opening, marks.closing, marks.forced)),
        *("<|end|>", "<thi", "\n", " ", "`", '"', "It is 5.", "é🙂"),
        *(ANSWER_MARKER, OUTPUT_MARKER),
    ]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)
OPENED = st.sampled_from([None, False, *ALL_MARKS])


@given(TEXTS, OPENED)
def test_nothing_of_a_reply_is_lost(text: str, opened: Marks | bool | None) -> None:
    parts = separate(text, opened)
    assert parts.opening + (parts.thought or "") + parts.closing + parts.said == text
    if parts.thought is None:
        assert (parts.opening, parts.closing, parts.spoken) == ("", "", text)


@given(st.sampled_from(ALL_MARKS), TEXTS, st.text(max_size=20), st.booleans())
def test_a_marker_in_a_thought_is_not_read(marks: Marks, inside: str, said: str, written: bool) -> None:
    """Whether the model or the template wrote the opening mark."""
    for mark in (marks.closing, marks.opening):
        inside = inside.replace(mark, "")
    thought = f"{ANSWER_MARKER} {inside} {OUTPUT_MARKER}"
    if marks.closing in thought or marks.opening in thought:
        return
    opened = False if written else marks
    text = (marks.opening if written else "") + thought + marks.closing + said
    parts = separate(text, opened)
    assert parts.thought is not None
    assert parts.thought + marks.before_closing == thought or parts.thought == thought
    assert parts.said == said
    assert ANSWER_MARKER not in parts.spoken
    assert not read_move(parts.spoken, last=False, protocol="paper").ends


@pytest.mark.parametrize(
    ("text", "opened", "thought", "said"),
    [
        ("<think>\nhm\n</think>\n\nWhat?", None, "hm", "What?"),
        ("<think>\nhm\n</think>\n\nWhat?", False, "hm", "What?"),
        ("hm\n</think>\n\nWhat?", None, "hm", "What?"),
        ("hm\n</think>\n\nWhat?", TAGS, "hm", "What?"),
        ("hm\n</think>\n\nWhat?", False, None, "hm\n</think>\n\nWhat?"),
        ("\n<think>hm", None, "hm", ""),
        ("<seed:think>hm. I WANT TO ANSWER</seed:think>What?", None, "hm. I WANT TO ANSWER", "What?"),
        ("<|channel>thought\nhm<channel|>What?", None, "hm", "What?"),
        ("<thinking>hm</thinking>\n\nWhat?", None, "hm", "What?"),
        ("<thought>hm</thought>What?", False, "hm", "What?"),
        ("◁think▷hm◁/think▷What?", None, "hm", "What?"),
        ("<|START_THINKING|>hm<|END_THINKING|>What?", None, "hm", "What?"),
        ("hm</seed:think>What?", None, "hm", "What?"),
        ("<reasoning>hm", None, "hm", ""),
        ("The tag <thinking> is closed by </thinking>.", None, None, "The tag <thinking> is closed by </thinking>."),
        ("hm, I", TAGS, "hm, I", ""),
        ("hm, I", None, None, "hm, I"),
        ("<thin", None, "", ""),
        ("<", None, None, "<"),
        ("<think>\n\n</think>\n\nWhat?", None, "", "What?"),
        ("<think>a</think>\n<think>b</think>What?", None, "a</think>\n<think>b", "What?"),
        ("<think>a</think>\n<think>b", None, "a</think>\n<think>b", ""),
        ("Sure.\n<think>hm</think>What?", None, "Sure.\n<think>hm", "What?"),
        ('return s.replace("<think>", "").split("</think>")', None, None, None),
        ("[THINK]hm[/THINK]What?", None, "hm", "What?"),
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>What?<|return|>",
            None,
            "hm",
            "What?",
        ),
        ("<|channel|>analysis<|message|>hm", None, "hm", ""),
        ("<|channel|>final<|message|>What?", None, "", "What?"),
        ("analysis of the fee: what is it?", None, None, "analysis of the fee: what is it?"),
        ("What is </ think>?", None, None, "What is </ think>?"),
    ],
)
def test_replies_as_models_write_them(
    text: str, opened: Marks | bool | None, thought: str | None, said: str | None
) -> None:
    parts = separate(text, opened)
    assert (None if parts.thought is None else parts.thought.strip()) == thought
    assert parts.spoken == (text if said is None else said)


@given(st.text(max_size=12), st.text(max_size=12), st.integers(0, 9), st.sampled_from([TAGS, CHANNELS, BRACKETS]))
def test_the_tokens_of_a_thought_are_counted_however_the_marks_are_cut(
    thought: str, said: str, offset: int, marks: Marks
) -> None:
    """Tokens of one to four bytes: some write a part of a character, of a mark, or of a mark and what follows it."""
    text = marks.opening + thought + marks.closing + said
    data = text.encode()
    sizes = [1 + (offset + number * 7) % 4 for number in range(len(data))]
    tokens: list[bytes] = []
    at = 0
    while at < len(data):
        tokens.append(data[at : at + sizes[len(tokens)]])
        at += len(tokens[-1])

    def decode(ids: object, _skip: bool) -> str:
        assert isinstance(ids, list)
        return b"".join(tokens[i] for i in ids).decode(errors="replace")

    parts, size = separate_ids(list(range(len(tokens))), decode, False)
    expected = separate(text, False)
    assert size is not None
    head = b"".join(tokens[:size])
    assert len(head) >= len((expected.opening + (expected.thought or "") + expected.closing).encode())
    if size:
        assert len(head) - len(tokens[size - 1]) < len(text.encode()) - len(expected.said.encode()) or not size
    assert parts.closing == expected.closing
    if "\ufffd" not in parts.said:
        assert parts.said == expected.said


def test_a_reply_that_was_cut_within_its_thought_is_all_thought() -> None:
    parts, size = separate_ids([1, 2], lambda ids, _skip: "<think>hm"[: 9 * len(ids)], False)
    assert (parts, size) == (Parts("<think>", "hm", "", ""), 2)


def test_counting_finds_the_first_token_that_completes_a_length() -> None:
    text = "abcdefgh"
    assert [count_leading(n, 4, lambda count: text[: 2 * count]) for n in range(9)] == [0, 1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize(
    ("prompt", "marks"),
    [
        ("<|im_start|>assistant\n<think>\n", TAGS),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n", False),
        ("<|start|>assistant", False),
    ],
)
def test_a_template_may_open_the_thought(prompt: str, marks: Marks | bool) -> None:
    assert opened_by(prompt) == marks


def test_marks_that_a_user_names_are_known_before_others() -> None:
    known = given_marks("<[plan]> <[/plan]>")
    parts = separate("<[plan]>hm<[/plan]>What?", None, known)
    assert (parts.thought, parts.said) == ("hm", "What?")
    assert separate("<[plan]>hm<[/plan]>What?").thought is None
    assert separate("<think>hm</think>What?", None, known).thought == "hm"
    assert opened_by("assistant\n<[plan]>\n", known) == known[0]
    assert given_marks(None) == ALL_MARKS
    for wrong in ("<a>", "<a> </a> <b>", "<a> <a>", ""):
        with pytest.raises(UsageError, match="are two"):
            given_marks(wrong)


def test_a_thought_in_the_text_joins_one_in_a_field() -> None:
    reply = without_thought(Reply("<think>b</think>\nWhat?", "stop", (1, 2), thought="a"))
    assert (reply.thought, reply.text, reply.thought_tokens) == ("a\nb", "What?", None)
    assert without_thought(Reply("<think>b", "length", (1, 2))) == Reply(
        "", "length", (1, 2), thought="b", thought_tokens=2
    )
