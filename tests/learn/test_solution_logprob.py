"""The potential: the log-probability of the solution after what the agent has seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sweet.learn.solution_logprob import SolutionLogprob
from sweet.llm.base import Reply
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.tasks.base import Message
from tests.learn.turns import asked_turn
from tests.stages.learn_runs import make_agent

MARKER = "I WANT TO ANSWER:"
SOLUTION = "def f(x):\n    return 2 * x + 1"
MESSAGES = [Message(role="system", content="You help."), Message(role="user", content="Write f.")]
ANSWER = [Reply(f"{MARKER}\n{SOLUTION}")]


@pytest.mark.parametrize(("template", "end"), [("chatml", "<|im_end|>"), ("llama3", "<|eot_id|>")])
def test_it_is_the_sum_over_the_solution_and_not_the_marker(tmp_path: Path, template: str, end: str) -> None:
    agent = make_agent(tmp_path / "agent", template, layers=2)
    tokenizer, model = load_tokenizer(agent), load_model(agent, "cpu")
    chat = [message.model_dump() for message in MESSAGES]
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    marked = tokenizer(f"{prompt}{MARKER}", add_special_tokens=False)["input_ids"]
    ids = tokenizer(f"{prompt}{MARKER}\n{SOLUTION}{end}", add_special_tokens=False)["input_ids"]
    assert ids[: len(marked)] == marked, "no token joins the marker and the solution here"
    with torch.no_grad():
        logprobs = model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
    by_hand = sum(float(logprobs[place - 1, ids[place]]) for place in range(len(marked), len(ids)))
    values = SolutionLogprob(model, tokenizer).values([asked_turn(MESSAGES, SOLUTION, ANSWER)] * 2)
    assert values == pytest.approx([by_hand, by_hand], abs=1e-3)


def test_what_does_not_fit_has_none_and_early_turns_are_dropped(tmp_path: Path) -> None:
    agent = make_agent(tmp_path / "agent", layers=2)
    tokenizer, model = load_tokenizer(agent), load_model(agent, "cpu")
    long = [*MESSAGES, Message(role="assistant", content="Which? " * 40), Message(role="user", content="This. " * 40)]
    whole = SolutionLogprob(model, tokenizer)
    both = whole.values([asked_turn(MESSAGES, SOLUTION, ANSWER), asked_turn(long, SOLUTION, ANSWER)])
    assert None not in both
    assert whole.reader.dropped == 0
    limited = SolutionLogprob(model, tokenizer, max_length=16)
    assert limited.values([asked_turn(MESSAGES, SOLUTION, ANSWER)]) == [None]
    assert limited.values([]) == []
