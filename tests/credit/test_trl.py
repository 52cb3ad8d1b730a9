"""`grpo` gives TRL's GRPOTrainer's advantages, loss and gradients on the same tokens."""

from __future__ import annotations

import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.credit_trl import Row, make_trainer
from sweet.credit.base import Batch
from sweet.credit.groups import GRPO
from sweet.learn.components import Example, TokenTerms
from sweet.learn.logprobs import Scorer
from sweet.learn.losses import losses
from sweet.learn.sequences import Pool
from sweet.learn.tokens import ChatEncoder
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory
from tests.learn.builders import SYSTEM, TEMPLATES, build_model, build_tokenizer, build_trajectory
from tests.learn.weighted import logprobs_of

pytestmark = [
    pytest.mark.skipif(find_spec("trl") is None, reason="trl is not installed (pip install trl)"),
    pytest.mark.filterwarnings("ignore"),  # those of TRL and of what it imports are not ours
]

REWARDS = (1.0, 0.0, 0.25, 0.25, 0.5, 0.75, 1.0, 0.0)
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


def make_dialogues() -> dict[str, Trajectory]:
    """Two tasks with four dialogues each, of different lengths."""
    names = [f"d{n}" for n in range(8)]
    return {name: build_trajectory(name, turns=1 + n % 3, task=f"task-{n // 4}") for n, name in enumerate(names)}


@pytest.mark.parametrize("std", [True, False])
@pytest.mark.parametrize(("loss_type", "average"), [("grpo", "dialogue"), ("bnpo", "token"), ("dapo", "token")])
def test_advantages_loss_and_gradients_are_trl_s(tmp_path: Path, loss_type: str, average: Any, *, std: bool) -> None:
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    dialogues = make_dialogues()
    rewards = dict(zip(dialogues, REWARDS, strict=True))
    encoder, pool = ChatEncoder(tokenizer), Pool()
    chosen = {name: pool.put(name, encoder.dialogue(one, SYSTEM).sequences) for name, one in dialogues.items()}
    model = build_model(len(tokenizer))
    draw = random.Random(0)
    # The model that sampled was another one: a third of the ratios is outside of the clip range, on both sides.
    sampled = [tuple(value + draw.uniform(-0.6, 0.6) for value in row) for row in logprobs_of(model, pool)]

    rule = GRPO(std=std, clip_low=0.2, clip_high=0.3, bound=1e9, average=average)
    batch = Batch(dialogues, task_kind("code").rewards, rewards=rewards)
    unasked: Any = None
    credits = {credit.of: credit for credit in rule.credit(batch, unasked)}
    advantages = {name: next(iter(credits[name].policy.values())) for name in dialogues}
    examples = []
    for name, indices in chosen.items():
        [index] = indices
        value: Any = advantages[name]
        terms = TokenTerms(sampled[index], (value,) * len(sampled[index]))
        examples.append(Example(name, indices, terms=(terms,)))
    found = losses(Scorer(model), rule.objective(0.1, 0.0, "paper"), pool.sequences, examples, None)
    loss = found.loss.mean()
    loss.backward()  # type: ignore[no-untyped-call]
    assert found.statistics is not None
    assert int(found.statistics.clipped) > 10
    own = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    rows = [Row.of(one.task_id, pool.sequences[chosen[name][0]], rewards[name]) for name, one in dialogues.items()]
    assert any(0 in row.mask for row in rows), "the human's turns are masked"
    other = build_model(len(tokenizer))
    settings: dict[str, Any] = {"epsilon": 0.2, "epsilon_high": 0.3, "loss_type": loss_type}
    trainer = make_trainer(other, tokenizer, rows, tmp_path, **settings, scale_rewards="group" if std else "none")
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    inputs = trainer._generate_and_score_completions([{"prompt": row.task} for row in rows])
    torch.testing.assert_close(inputs["advantages"].tolist(), [float(str(advantages[n])) for n in dialogues], **CLOSE)
    mu = torch.zeros(inputs["completion_ids"].shape)
    mask = inputs["tool_mask"].bool() & inputs["completion_mask"].bool()
    mu[mask] = torch.tensor([value for row in sampled for value in row])
    inputs["old_per_token_logps"] = mu
    theirs = trainer._compute_loss(trainer.model, inputs)
    torch.testing.assert_close(loss.detach(), theirs.detach(), **CLOSE)
    theirs.backward()
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(own[name], parameter.grad, msg=name, **CLOSE)
    assert max(float(gradient.abs().max()) for gradient in own.values()) > 1e-2, "the gradients are not near 0"
