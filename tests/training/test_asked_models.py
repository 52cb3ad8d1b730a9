"""The models that a rule may ask: what sampled, the most likely ids, and a reward model that is trained in turns."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn.functional import logsigmoid

from sweet.credit.base import Batch, Credit, RewardTraining
from sweet.errors import SweetError, UsageError
from sweet.learn.components import Objective
from sweet.learn.engine import Engine, trainable_weights
from sweet.learn.logprobs import Scorer
from sweet.learn.rows import Preference
from sweet.learn.solution_logprob import SolutionLogprob
from sweet.learn.tokens import ChatEncoder
from sweet.llm.base import Reply
from sweet.tasks.markers import ANSWER_MARKER
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory
from sweet.training.examples import DialogueEncoder
from sweet.training.reward_model import RewardModel
from sweet.training.starting_policy import PlannedPolicy, StartingPolicy
from tests.credit.test_token_terms import with_ids
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer, build_trajectory
from tests.learn.turns import asked_turn

BETA = 0.05
DPO = Objective(BETA, 0.0, "none")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer(TEMPLATES["chatml"])


@pytest.fixture
def encoder(tokenizer: Any) -> DialogueEncoder:
    return DialogueEncoder(ChatEncoder(tokenizer), "paper", None)


def make_reward(encoder: DialogueEncoder, rows: int, **settings: Any) -> RewardModel:
    return RewardModel(Engine(build_model(rows), 1.0), encoder, 5e-4, **({"token_budget": 300} | settings))


def make_models(encoder: DialogueEncoder, rows: int, reward: RewardModel | None = None) -> StartingPolicy:
    return StartingPolicy(encoder, partial(Scorer, build_model(rows)), 4096, reward=reward)


def make_batch(tokenizer: Any, count: int = 4, without: Sequence[int] = (1, 3, 5)) -> Batch:
    """Dialogues of one task, the first ones better."""
    names = [f"d{number}" for number in range(count)]
    dialogues = {
        name: with_ids(build_trajectory(name, turns=2 + i % 2), tokenizer, without=without)
        for i, name in enumerate(names)
    }
    rewards = {name: 1 - i / count for i, name in enumerate(names)}
    return Batch(dialogues, task_kind("code").rewards, rewards=rewards, source="scores-1")


def couples(batch: Batch) -> list[Credit]:
    names = list(batch.rewards)
    return [
        Credit(Preference(task_id="task-1", chosen=a, rejected=b, chosen_reward=1.0, rejected_reward=0.0))
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    ]


def sums(models: StartingPolicy, which: Any, dialogue: Trajectory) -> float:
    return sum(sum(turn.tokens) for turn in models.logprobs(which, [dialogue])[dialogue.id].values())


def test_the_sampler_is_what_was_recorded_and_elsewhere_the_policy(encoder: DialogueEncoder, tokenizer: Any) -> None:
    dialogue = with_ids(build_trajectory("t", turns=3), tokenizer, without=[3])
    models = make_models(encoder, len(tokenizer))
    found, policy = models.logprobs("sampler", [dialogue])["t"], models.logprobs("policy", [dialogue])["t"]
    assert sorted(found) == sorted(policy) == [1, 3, 5]
    assert found[1].tokens == dialogue.dialogue_history[1].logprobs
    assert found[5].tokens == dialogue.dialogue_history[5].logprobs
    assert found[3] == policy[3]


def test_the_most_likely_ids_of_each_turn(encoder: DialogueEncoder, tokenizer: Any) -> None:
    dialogue = with_ids(build_trajectory("t", turns=2), tokenizer)
    models = make_models(encoder, len(tokenizer))
    found = models.logprobs("start", [dialogue], informed=True, top=4)["t"]
    plain = models.logprobs("start", [dialogue], informed=True)["t"]
    blind = models.logprobs("start", [dialogue], top=4)["t"]
    for turn in (1, 3):
        assert found[turn].tokens == plain[turn].tokens
        assert found[turn].tokens != blind[turn].tokens, "only one of them sees the training-time information"
        ids = dialogue.dialogue_history[turn].token_ids or ()
        for own, token, likely, logprobs in zip(
            ids, found[turn].tokens, found[turn].top_ids, found[turn].top_logprobs, strict=True
        ):
            assert len(set(likely)) == 4
            assert sorted(logprobs, reverse=True) == list(logprobs)
            assert logprobs[likely.index(own)] == token if own in likely else token <= logprobs[-1]
    planned = PlannedPolicy(encoder, partial(Scorer, None), 4096)
    assert planned.logprobs("start", [dialogue], top=4)["t"].keys() == {1, 3}


def test_the_solution_is_read_before_each_turn(encoder: DialogueEncoder, tokenizer: Any) -> None:
    dialogue = with_ids(build_trajectory("t", turns=2), tokenizer).model_copy(update={"agent_system": "You help."})
    found = make_models(encoder, len(tokenizer)).solutions([dialogue])["t"]
    answer = [Reply(f"{ANSWER_MARKER}\n{dialogue.task.ground_truth}")]
    turns = [
        asked_turn(dialogue.observation(turn, None), dialogue.task.ground_truth, answer)
        for turn in dialogue.agent_turns
    ]
    values = SolutionLogprob(build_model(len(tokenizer)), tokenizer).values(turns)
    assert [sum(found[turn].tokens) for turn in (1, 3)] == pytest.approx(values, abs=1e-3)
    assert sorted(found) == [1, 3]
    planned = PlannedPolicy(encoder, partial(Scorer, None), 4096).solutions([dialogue])["t"]
    assert planned[1].tokens != planned[3].tokens, "no two are equal where a training is only planned"


def test_a_reward_model_begins_as_the_start_and_learns_the_preferences(
    encoder: DialogueEncoder, tokenizer: Any
) -> None:
    reward = make_reward(encoder, len(tokenizer))
    models, batch = make_models(encoder, len(tokenizer), reward), make_batch(tokenizer)
    for dialogue in batch.dialogues.values():  # the policy itself sampled them
        assert sums(models, "reward", dialogue) == pytest.approx(sums(models, "sampler", dialogue), abs=1e-3)
    models.train_reward(batch, couples(batch), DPO, RewardTraining(epochs=6, batch=6, lr=2e-3))
    assert reward.figures is not None
    assert (reward.figures["reward_preferences"], reward.epochs, reward.figures["reward_accuracy"]) == (6, 6, 1.0)
    gains = [sums(models, "reward", one) - sums(models, "sampler", one) for one in batch.dialogues.values()]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 0 > gains[-1]


def test_its_first_update_is_that_of_dpo_against_the_recorded_probabilities(
    encoder: DialogueEncoder, tokenizer: Any
) -> None:
    """-log sigma(beta (log-ratio of the better - log-ratio of the worse)) with the sampler as the reference, by a
    forward pass of its own."""
    batch = make_batch(tokenizer, without=())
    reward = make_reward(encoder, len(tokenizer))
    models, expected = make_models(encoder, len(tokenizer), reward), build_model(len(tokenizer))
    credits = couples(batch)

    def ratio(name: str) -> torch.Tensor:
        dialogue = batch.dialogues[name]
        [sequence] = encoder.encode(dialogue, informed=False).sequences
        table = expected(input_ids=torch.tensor([sequence.ids])).logits.log_softmax(-1)[0]
        own = torch.stack([table[i - 1, sequence.ids[i]] for s in sequence.spans for i in range(s.start, s.stop)])
        return own.sum() - sum(sum(dialogue.dialogue_history[i].logprobs or ()) for i in dialogue.agent_turns)

    compared = [credit.of for credit in credits if isinstance(credit.of, Preference)]
    loss = torch.stack([-logsigmoid(BETA * (ratio(p.chosen) - ratio(p.rejected))) for p in compared]).mean()
    torch.autograd.backward([loss])
    torch.nn.utils.clip_grad_norm_(expected.parameters(), 1.0)
    torch.optim.AdamW(expected.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0).step()
    models.train_reward(batch, credits, DPO, RewardTraining(epochs=1, batch=len(credits)))  # twice the policy's rate
    assert reward.figures is not None
    assert reward.figures["reward_loss"] == pytest.approx(loss.item(), rel=1e-4)
    own = trainable_weights(reward.scorer.model)
    for name, tensor in trainable_weights(expected).items():
        close = (own[name] - tensor).abs() < 2e-5
        # Adam's first step is the sign of the gradient, which rounding decides where the gradient is 0.
        assert close.float().mean() > 0.99, name


def test_a_restored_reward_model_goes_through_the_same_weights(encoder: DialogueEncoder, tokenizer: Any) -> None:
    batch, settings = make_batch(tokenizer), RewardTraining(epochs=2, batch=2)
    whole, first, resumed = (make_reward(encoder, len(tokenizer), seed=3) for _ in range(3))
    for reward in (whole, first):
        make_models(encoder, len(tokenizer), reward).train_reward(batch, couples(batch), DPO, settings)
    resumed.load_state(copy.deepcopy(first.state()))
    for reward in (whole, resumed):
        make_models(encoder, len(tokenizer), reward).train_reward(batch, couples(batch), DPO, settings)
    expected, found = whole.state(), resumed.state()
    assert expected["epochs"] == found["epochs"] == 4
    assert all(torch.equal(tensor, found["model"][name]) for name, tensor in expected["model"].items())
    assert not all(torch.equal(tensor, first.state()["model"][name]) for name, tensor in expected["model"].items())


def test_a_reward_model_that_diverges_says_which_option_to_lower(encoder: DialogueEncoder, tokenizer: Any) -> None:
    reward, batch = make_reward(encoder, len(tokenizer)), make_batch(tokenizer)
    models = make_models(encoder, len(tokenizer), reward)
    with torch.no_grad():
        reward.scorer.model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(SweetError, match="reward model is not a finite number") as error:
        models.train_reward(batch, couples(batch), DPO, RewardTraining(epochs=1, batch=2, lr=1e-3))
    assert "reward-lr=0.0001" in str(error.value.fix)


def test_a_rule_that_does_not_announce_its_reward_model_is_refused(encoder: DialogueEncoder, tokenizer: Any) -> None:
    batch = make_batch(tokenizer)
    with pytest.raises(UsageError, match="none was prepared"):
        make_models(encoder, len(tokenizer)).logprobs("reward", list(batch.dialogues.values()))
