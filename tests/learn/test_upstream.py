"""What the published code reads: the text and mask of a side, and the spans and ids of its ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sweet.learn.critic import AdvantageCritic, Reader
from sweet.learn.sequences import TokenSequence
from sweet.learn.tokens import ChatEncoder, TooLong
from sweet.learn.upstream import UpstreamEncoder, scoring_prefix
from sweet.llm.base import Reply
from sweet.tasks.base import Message
from sweet.tasks.markers import seen_upstream
from sweet.tasks.trajectory import Trajectory, Turn
from tests.learn.builders import SYSTEM, TEMPLATES, build_model, build_tokenizer, build_trajectory
from tests.learn.turns import asked_turn

C = "In light that the final answer is: C0."
OBSERVATION = [Message(role="system", content="You help."), Message(role="user", content="Write fee.")]
SAID = (
    "It is a fee. OUTPUT: What is the rate? OUTPUT: And the limit?",
    "Is there a limit?",
    "I know it.\nOUTPUT:\nI WANT TO ANSWER: def fee(hours): return hours * 5",
)


def thoughtful() -> Trajectory:
    """A dialogue whose agent thinks before it speaks, as protocol `upstream` records it."""
    history = [Turn(role="user", content="Write def fee(hours).")]
    for said in SAID:
        history += [Turn(role="assistant", content=seen_upstream(said), output=said), Turn(role="user", content="5.")]
    return build_trajectory().model_copy(update={"dialogue_history": tuple(history[:-1])})


def supervised(tokenizer: Any, rows: Sequence[TokenSequence]) -> list[str]:
    return [tokenizer.decode(list(row.ids[span.start : span.stop])) for row in rows for span in row.spans]


def with_begin_of_text(template: str) -> Any:
    """A tokenizer that puts the begin-of-text token before a text by itself, as Llama's does."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = build_tokenizer(template)
    begin = "<|begin_of_text|>"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, tokenizer.convert_tokens_to_ids(begin))]
    )
    return tokenizer


@pytest.mark.parametrize(
    ("family", "space", "end"),
    [
        ("llama3", "\n\n", "<|eot_id|>"),
        ("chatml", "\n", "<|im_end|>"),
        ("qwen", "\n", "<|im_end|>"),
        ("gemma", "\n", "<end_of_turn>"),
    ],
)
def test_a_side_is_the_last_prompt_and_its_raw_reply(
    tokenizers: dict[str, Any], family: str, space: str, end: str
) -> None:
    tokenizer, trajectory = tokenizers[family], thoughtful()
    rows = UpstreamEncoder(tokenizer).dialogue(trajectory, SYSTEM, hidden="C0", protocol="upstream").sequences
    prompt = ChatEncoder(tokenizer).prompts([trajectory.observation(5, SYSTEM)])[0]
    lead = "<think>\n\n</think>\n\n" if family == "qwen" else ""
    assert [tokenizer.decode(list(row.ids)) for row in rows] == [
        f"{C}{tokenizer.decode(prompt)}{lead}{SAID[2]} {tokenizer.eos_token}"
    ]
    trimmed = family in ("llama3", "gemma")
    first = "What is the rate?" if trimmed else " What is the rate? "
    assert supervised(tokenizer, rows) == [
        f"{space}{first}{end}",
        f"{space}{SAID[1]}{end}",
        f"{space}{lead}{SAID[2]} {tokenizer.eos_token}",
    ]
    assert [span.turn for span in rows[0].spans] == [1, 3, 5]


def test_protocol_paper_supervises_what_was_sampled(tokenizers: dict[str, Any]) -> None:
    rows = ChatEncoder(tokenizers["llama3"]).dialogue(thoughtful(), SYSTEM, hidden="C0").sequences
    assert supervised(tokenizers["llama3"], rows) == [f"{said}<|eot_id|>" for said in SAID]


def test_a_side_that_is_too_long_loses_early_turns(tokenizers: dict[str, Any]) -> None:
    encoder, trajectory = UpstreamEncoder(tokenizers["llama3"]), build_trajectory(turns=5)
    [whole] = encoder.dialogue(trajectory, SYSTEM, hidden="C0", protocol="upstream").sequences
    encoded = encoder.dialogue(trajectory, SYSTEM, hidden="C0", protocol="upstream", max_length=len(whole.ids) - 1)
    assert encoded.dropped >= 1
    assert [span.turn for row in encoded.sequences for span in row.spans] == trajectory.agent_turns[encoded.dropped :]
    assert encoded.sequences[-1].ids[-1] == encoder.tokenizer.eos_token_id


@pytest.mark.parametrize("ended", [True, False])
def test_the_ranking_averages_over_the_header_and_the_text_of_a_reply(tokenizers: dict[str, Any], ended: bool) -> None:
    tokenizer = tokenizers["llama3"]
    model, reply = build_model(len(tokenizer)), Reply("What is the rate?", finish_reason="stop" if ended else "length")
    critic = AdvantageCritic(model, model, tokenizer, protocol="upstream")
    turn = asked_turn(OBSERVATION, "C0", [replace(reply, logprobs=(-1.0,))])
    judged = critic.judge([turn])[0][0]
    [seen], _ = critic._rows(critic.reader.turn, [turn])
    header = "<|start_header_id|>assistant<|end_header_id|>\n\n"
    assert supervised(tokenizer, seen) == [f"{header}What is the rate?"], (
        "a reply that was cut off keeps its last token"
    )
    text = ChatEncoder(tokenizer).replies([Reply("What is the rate?", finish_reason="length")])[0]
    assert judged.tokens == 4 + len(text)


def test_the_ranking_reads_a_second_begin_of_text_and_the_training_does_not() -> None:
    tokenizer = with_begin_of_text(TEMPLATES["llama3"])
    begin = tokenizer.convert_tokens_to_ids("<|begin_of_text|>")
    assert scoring_prefix(tokenizer) == (begin,)
    assert scoring_prefix(build_tokenizer(TEMPLATES["llama3"])) == ()
    turn = asked_turn(OBSERVATION, "C0", [Reply("What is the rate?")])
    paper, upstream = (
        Reader(ChatEncoder(tokenizer), informed=True, protocol=protocol, max_length=None)
        for protocol in ("paper", "upstream")
    )
    assert [reader.turn(turn)[0].ids.count(begin) for reader in (paper, upstream)] == [1, 2]
    assert [reader.turn(turn, without_hidden=True)[0].ids.count(begin) for reader in (paper, upstream)] == [1, 1]
    [row] = upstream.turn(turn)
    assert tokenizer.decode(list(row.ids)).startswith(f"<|begin_of_text|>{C}<|begin_of_text|>")
    assert supervised(tokenizer, [row]) == ["What is the rate?<|eot_id|>"]
    [dialogue] = upstream.dialogue(build_trajectory(turns=2), SYSTEM)
    assert dialogue.ids.count(begin) == 2
    [side] = UpstreamEncoder(tokenizer).dialogue(build_trajectory(), SYSTEM, hidden="C0", protocol="upstream").sequences
    assert side.ids.count(begin) == 1


def test_the_second_begin_of_text_counts_for_the_maximum_length() -> None:
    tokenizer = with_begin_of_text(TEMPLATES["llama3"])
    turn = asked_turn(OBSERVATION, "C0", [Reply("What is the rate?")])

    def rows(limit: int | None) -> list[TokenSequence]:
        return [*Reader(ChatEncoder(tokenizer), informed=True, protocol="upstream", max_length=limit).turn(turn)]

    length = len(rows(None)[0].ids)
    assert [len(row.ids) for row in rows(length)] == [length]
    assert rows(length - 1) == []
    with pytest.raises(TooLong):
        ChatEncoder(tokenizer).turn(
            OBSERVATION, turn.replies, turn=1, name="x", hidden="C0", protocol="upstream", max_length=length - 2
        )
