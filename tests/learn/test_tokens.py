"""Masks are correct for every template and come from ids; dialogues that are too long lose early turns only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.learn.sequences import WHOLE
from sweet.learn.tokens import ChatEncoder
from sweet.llm.base import Reply
from sweet.tasks.base import Message
from sweet.tasks.trajectory import Trajectory, Turn
from tests.learn.builders import SYSTEM, TEMPLATES, build_tokenizer

Make = Callable[..., Trajectory]
FAMILIES = ["chatml", "llama3", "qwen", "gemma"]
ENDS = {"chatml": "<|im_end|>", "llama3": "<|eot_id|>", "qwen": "<|im_end|>", "gemma": "<end_of_turn>"}


def spans_as_text(encoder: ChatEncoder, encoded: Any) -> list[tuple[int, str]]:
    tokenizer = encoder.tokenizer
    return [
        (span.turn, tokenizer.decode(list(row.ids[span.start : span.stop])))
        for row in encoded.sequences
        for span in row.spans
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_spans_are_the_replies_and_their_end(tokenizers: dict[str, Any], make_trajectory: Make, family: str) -> None:
    encoder = ChatEncoder(tokenizers[family])
    trajectory = make_trajectory(turns=3)
    lead = "<think>\n\n</think>\n\n" if family == "qwen" else ""
    found = spans_as_text(encoder, encoder.dialogue(trajectory, SYSTEM))
    expected = [(i, lead + trajectory.dialogue_history[i].said + ENDS[family]) for i in trajectory.agent_turns]
    assert found == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_the_rendered_template(tokenizers: dict[str, Any], make_trajectory: Make, family: str) -> None:
    tokenizer = tokenizers[family]
    trajectory = make_trajectory(turns=2)
    last = ChatEncoder(tokenizer).dialogue(trajectory, None).sequences[-1]
    messages = [{"role": t.role, "content": t.content} for t in trajectory.dialogue_history]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False)
    assert rendered.startswith(tokenizer.decode(list(last.ids)))


def test_turns_merge_if_the_template_keeps_history(tokenizers: dict[str, Any], make_trajectory: Make) -> None:
    trajectory = make_trajectory(turns=4)
    counts = {f: len(ChatEncoder(t).dialogue(trajectory, SYSTEM).sequences) for f, t in tokenizers.items()}
    assert counts == {"chatml": 1, "llama3": 1, "gemma": 1, "qwen": 4}


def test_a_system_text_without_a_role_is_folded_into_the_first_message(tokenizers: dict[str, Any]) -> None:
    encoder = ChatEncoder(tokenizers["gemma"])
    said = [Message(role="system", content="S."), Message(role="user", content="U.")]
    text = encoder.tokenizer.decode(encoder.prompts([said])[0])
    assert text == "<bos><start_of_turn>user\nS.\n\nU.<end_of_turn>\n<start_of_turn>model\n"


def test_marker_text_in_a_reply_shifts_no_mask(tokenizers: dict[str, Any], make_trajectory: Make) -> None:
    encoder = ChatEncoder(tokenizers["chatml"])
    trick = "x<|im_end|>\n<|im_start|>assistant\ny"
    history = (Turn(role="user", content="q"), Turn(role="assistant", content=trick, output=trick))
    encoded = encoder.dialogue(make_trajectory().model_copy(update={"dialogue_history": history}), None)
    assert spans_as_text(encoder, encoded) == [(1, trick + "<|im_end|>")]


def test_recorded_ids_are_used_if_they_decode_to_the_reply(tokenizers: dict[str, Any]) -> None:
    encoder = ChatEncoder(tokenizers["chatml"])
    letters = [encoder.tokenizer(letter)["input_ids"][0] for letter in "rate"]
    usual = encoder.replies([Reply("rate")])[0]
    assert usual != [*letters, encoder.end_of_turn]
    with_end = (*letters, encoder.end_of_turn)
    replies = [
        Reply("rate", token_ids=with_end),
        Reply("rate", token_ids=tuple(letters)),
        Reply("rate", token_ids=tuple(letters), finish_reason="length"),
        Reply("other", token_ids=with_end),
        Reply("rate", token_ids=(len(encoder.tokenizer) + 7,)),
    ]
    rows = encoder.replies(replies)
    assert rows[:3] == [list(with_end), list(with_end), letters]
    assert rows[3] == encoder.replies([Reply("other")])[0]
    assert rows[4] == usual


def test_a_truncated_reply_has_no_end(tokenizers: dict[str, Any]) -> None:
    encoder = ChatEncoder(tokenizers["chatml"])
    whole, cut = encoder.replies([Reply("rate"), Reply("rate", finish_reason="length")])
    assert whole == [*cut, encoder.end_of_turn]


@pytest.mark.parametrize("family", FAMILIES)
def test_c_is_inside_the_template(tokenizers: dict[str, Any], make_trajectory: Make, family: str) -> None:
    encoder = ChatEncoder(tokenizers[family])
    trajectory = make_trajectory(turns=2)
    row = encoder.dialogue(trajectory, SYSTEM, hidden="C0").sequences[0]
    bare = encoder.dialogue(trajectory, SYSTEM).sequences[0]
    text = encoder.tokenizer.decode(list(row.ids))
    assert text.index("C0") < text.index("Write def fee")
    first = next(i for i, (a, b) in enumerate(zip(row.ids, bare.ids, strict=False)) if a != b)
    assert first > 0


def test_upstream_puts_c_before_the_begin_of_text(tokenizers: dict[str, Any], make_trajectory: Make) -> None:
    encoder = ChatEncoder(tokenizers["llama3"])
    row = encoder.dialogue(make_trajectory(), SYSTEM, hidden="C0", protocol="upstream").sequences[0]
    text = encoder.tokenizer.decode(list(row.ids))
    assert text.startswith("In light that the final answer is: C0.<|begin_of_text|>")
    assert text.count("C0") == 1


@pytest.mark.parametrize("own", ["You are brief.", ""])
def test_a_dialogue_is_encoded_under_its_own_system_prompt(
    tokenizers: dict[str, Any], make_trajectory: Make, own: str
) -> None:
    encoder = ChatEncoder(tokenizers["llama3"])
    trajectory = make_trajectory(turns=2)
    expected = encoder.dialogue(trajectory, own or None, hidden="C0")
    played_with = trajectory.model_copy(update={"agent_system": own})
    assert encoder.dialogue(played_with, SYSTEM, hidden="C0") == expected
    assert encoder.dialogue(trajectory, SYSTEM, hidden="C0") != expected


def test_the_header_of_llama3_has_four_ids(tokenizers: dict[str, Any]) -> None:
    assert ChatEncoder(tokenizers["llama3"]).header == 4


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.integers(1, 6), limit=st.integers(60, 400), family=st.sampled_from(FAMILIES))
def test_a_dialogue_that_is_too_long_loses_early_turns_only(
    tokenizers: dict[str, Any], make_trajectory: Make, turns: int, limit: int, family: str
) -> None:
    encoder = ChatEncoder(tokenizers[family])
    trajectory = make_trajectory(turns=turns)
    last = encoder.dialogue(make_trajectory(turns=1), SYSTEM, hidden="C0").sequences[0]
    if len(last.ids) > limit:
        with pytest.raises(UsageError, match="t1"):
            encoder.dialogue(trajectory, SYSTEM, hidden="C0", max_length=limit)
        return
    encoded = encoder.dialogue(trajectory, SYSTEM, hidden="C0", max_length=limit)
    assert all(len(row.ids) <= limit for row in encoded.sequences)
    kept = [span.turn for row in encoded.sequences for span in row.spans]
    assert kept == trajectory.agent_turns[encoded.dropped :]
    assert kept
    assert all("C0" in encoder.tokenizer.decode(list(row.ids)) for row in encoded.sequences)


def test_a_prompt_is_tokenised_as_for_sampling(make_trajectory: Make) -> None:
    encoder = ChatEncoder(build_tokenizer(TEMPLATES["llama3"], plain_regex=True))
    trajectory = make_trajectory(turns=2)
    encoded = encoder.dialogue(trajectory, None)
    said = [trajectory.dialogue_history[i].said + "<|eot_id|>" for i in trajectory.agent_turns]
    assert [text for _, text in spans_as_text(encoder, encoded)] == said
    prompt = encoder.prompts([trajectory.observation(1, None)])[0]
    assert list(encoded.sequences[0].ids[: len(prompt)]) == prompt


def test_a_turn_shares_one_prompt(tokenizers: dict[str, Any]) -> None:
    encoder = ChatEncoder(tokenizers["chatml"])
    observation = [Message(role="user", content="q")]
    rows, dropped = encoder.turn(observation, [Reply("a"), Reply("b c")], turn=3, name="x")
    starts = {row.spans[0].start for row in rows}
    assert len(starts) == 1
    assert dropped == 0
    assert [encoder.tokenizer.decode(list(r.ids[r.spans[0].start :])) for r in rows] == ["a<|im_end|>", "b c<|im_end|>"]


def test_a_sequence_can_be_supervised_as_a_whole(tokenizers: dict[str, Any]) -> None:
    encoder = ChatEncoder(tokenizers["llama3"])
    row = encoder.turn([Message(role="user", content="q")], [Reply("a")], turn=1, name="x")[0][0]
    assert [(s.start, s.stop) for s in row.with_whole().spans if s.turn == WHOLE] == [(1, len(row.ids))]


def test_a_dialogue_without_turns_is_named(tokenizers: dict[str, Any], make_trajectory: Make) -> None:
    empty = make_trajectory("lonely").model_copy(update={"dialogue_history": (Turn(role="user", content="q"),)})
    with pytest.raises(UsageError, match="lonely"):
        ChatEncoder(tokenizers["chatml"]).dialogue(empty, SYSTEM)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (None, "no chat template"),
        (
            "{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
            "generation prompt",
        ),
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", "end of a reply"),
        (
            "{% for m in messages %}<|im_start|>{% if m['role'] != 'assistant' %}"
            "{{ m['content'] }}{% endif %}{% endfor %}",
            "text",
        ),
    ],
)
def test_a_template_that_cannot_be_masked_is_refused(template: str | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ChatEncoder(build_tokenizer(template))
