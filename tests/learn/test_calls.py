"""Training on agents that call tools is exact: calls are the agent's tokens, results are read and never supervised, and
log-probabilities and gradients are those of plain sequences from what was sampled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from sweet.learn.logprobs import Scorer
from sweet.learn.tokens import ChatEncoder
from sweet.llm.base import Reply
from tests.learn.calling import CALLING, calling_model, calling_tokenizer, end_of, play, render, written

FAMILIES = list(CALLING)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Any]:
    return {family: calling_tokenizer(family) for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_turn_with_calls_is_what_the_model_read_and_wrote(tokenizers: dict[str, Any], family: str) -> None:
    trajectory = play(tokenizers[family], family)
    encoded = ChatEncoder(tokenizers[family]).dialogue(trajectory, None)
    found = [(list(row.ids[: span.stop]), span.start) for row in encoded.sequences for span in row.spans]
    expected = []
    for index in trajectory.agent_turns:
        prompt, ids = trajectory.prompt_ids(index), trajectory.dialogue_history[index].token_ids
        assert prompt is not None
        assert ids is not None
        expected.append(([*prompt, *ids], len(prompt)))
    assert found == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_without_ids_calls_are_written_as_the_model_writes_them(tokenizers: dict[str, Any], family: str) -> None:
    """The template's own texts, which extend one another: one sequence, where no token of a result is supervised."""
    tokenizer = tokenizers[family]
    trajectory = play(tokenizer, family, recorded=False)
    encoded = ChatEncoder(tokenizer).dialogue(trajectory, None)
    spans = [(row, span) for row in encoded.sequences for span in row.spans]
    for index, (row, span) in zip(trajectory.agent_turns, spans, strict=True):
        turn = trajectory.dialogue_history[index]
        assert tokenizer.decode(row.ids[: span.start]) == render(tokenizer, trajectory.dialogue_history[:index])
        said = written(family, turn.content, turn.tool_calls or ()) + end_of(family, turn.tool_calls or ())
        assert tokenizer.decode(row.ids[span.start : span.stop]) == said
    assert (len(encoded.sequences) == 1) == (family != "gpt-oss"), "its replies end with another token in the history"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tree_gives_the_means_and_gradients_of_plain_sequences(tokenizers: dict[str, Any], family: str) -> None:
    model = calling_model(tokenizers[family])
    dialogues = [play(tokenizers[family], family, recorded=known, name=f"t{known}") for known in (True, False)]
    encoder = ChatEncoder(tokenizers[family])
    rows = [row for dialogue in dialogues for row in encoder.dialogue(dialogue, None).sequences]
    plain = []
    for row in rows:
        table = torch.log_softmax(model(input_ids=torch.tensor([row.ids])).logits[0].float(), -1)
        plain += [torch.stack([table[i - 1, row.ids[i]] for i in range(s.start, s.stop)]).mean() for s in row.spans]
    weights = torch.linspace(-1, 1, len(plain))
    torch.autograd.backward([(torch.stack(plain) * weights).sum()])
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()
    scores = Scorer(model, share=True)(rows)
    means = scores.sums / scores.counts
    torch.testing.assert_close(means, torch.stack(plain), rtol=0, atol=1e-5)
    torch.autograd.backward([(means * weights).sum()])
    found = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert float((found - gradient).norm() / gradient.norm()) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_ids_of_other_calls_are_not_used(tokenizers: dict[str, Any], family: str) -> None:
    trajectory, encoder = play(tokenizers[family], family), ChatEncoder(tokenizers[family])
    reply = Reply.of(trajectory.dialogue_history[1])
    assert reply.tool_calls
    assert encoder.encode_replies([reply])[0].recorded
    [fewer] = encoder.encode_replies([replace(reply, tool_calls=reply.tool_calls[:1])])
    assert fewer.recorded, "of very many calls a dialogue records the first"
    for changed in ({"name": "delete"}, {"arguments": '{"key": "other"}'}):
        calls = (reply.tool_calls[0].model_copy(update=changed), *reply.tool_calls[1:])
        [other] = encoder.encode_replies([Reply(reply.text, token_ids=reply.token_ids, tool_calls=calls)])
        assert not other.recorded
        assert str(changed.get("name", "other")) in tokenizers[family].decode(other.ids)
