"""On-policy self-distillation: which probabilities are the teacher's, at which turns, and trainings with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.credit.base import Batch, Credit, TurnLogprobs
from sweet.credit.opsd import OPSD
from sweet.errors import SweetError, UsageError
from sweet.learn.critic import AdvantageCritic
from sweet.learn.logprobs import Scorer
from sweet.learn.tokens import ChatEncoder
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory
from sweet.training.config import TrainActorConfig
from sweet.training.examples import DialogueEncoder, ExampleBuilder
from sweet.training.sources import Sources
from sweet.training.stage import plan_train_actor, run_train_actor
from sweet.training.starting_policy import StartingPolicy
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer, build_trajectory
from tests.stages.counting import Copying
from tests.stages.learn_runs import make_agent, make_run
from tests.training.test_train import weights

RULE = task_kind("code").rewards


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer(TEMPLATES["chatml"])


class Teachers(StartingPolicy):
    """Records who was asked, and what they were shown."""

    def __init__(self, tokenizer: Any, max_length: int | None = None) -> None:
        model = build_model(len(tokenizer))
        super().__init__(DialogueEncoder(ChatEncoder(tokenizer), "paper", max_length), lambda: Scorer(model), 4096)
        self.model = model
        self.asked: list[tuple[Any, ...]] = []

    def logprobs(
        self, model: Any, dialogues: Sequence[Trajectory], *, informed: bool = False, top: int = 0
    ) -> dict[str, dict[int, TurnLogprobs]]:
        self.asked.append((model, informed, top))
        return super().logprobs(model, dialogues, informed=informed, top=top)


def batch_of(*dialogues: Trajectory) -> Batch:
    return Batch({dialogue.id: dialogue for dialogue in dialogues}, RULE, source="rollouts-1")


@pytest.mark.parametrize(("teacher", "asked"), [("start", "start"), ("live", "policy"), ("average", "average")])
def test_the_teacher_is_the_chosen_model_and_sees_the_information(tokenizer: Any, teacher: Any, asked: str) -> None:
    models, dialogue = Teachers(tokenizer), build_trajectory("t", turns=3)
    rule = OPSD(teacher=teacher, rate=0.1)
    [credit] = rule.credit(batch_of(dialogue), models)
    assert models.asked == [(asked, True, 0)]
    assert sorted(credit.distil) == dialogue.agent_turns
    assert credit.policy == {}
    assert rule.average_rate == (0.1 if teacher == "average" else None)
    expected = models.logprobs("start", [dialogue], informed=True)["t"]
    blind = models.logprobs("start", [dialogue])["t"]
    assert credit.distil == expected
    assert credit.distil != blind


def test_the_mean_of_its_weights_is_the_advantage_of_the_judge_untrained(tokenizer: Any) -> None:
    """Before the first step: log start(a | o, c) - log start(a | o), a turn's mean over its tokens."""
    models, dialogue = Teachers(tokenizer), build_trajectory("t", turns=3)
    [credit] = OPSD().credit(batch_of(dialogue), models)
    own = models.logprobs("policy", [dialogue])["t"]
    judge = AdvantageCritic(models.model, models.model, tokenizer, reference_context="dialogue")
    [advantages] = judge.turn_scores([dialogue], None)
    for turn, expected in advantages.items():
        found = [a - b for a, b in zip(credit.distil[turn].tokens, own[turn].tokens, strict=True)]
        assert sum(found) / len(found) == pytest.approx(expected, abs=1e-4)


def test_the_most_likely_tokens_reach_the_loss(tokenizer: Any) -> None:
    models, dialogue = Teachers(tokenizer), build_trajectory("t", turns=2)
    rule = OPSD(form="top", k=5)
    [credit] = rule.credit(batch_of(dialogue), models)
    assert models.asked[0] == ("start", True, 5)
    builder = ExampleBuilder(models.encoder, "rollouts-1")
    [example] = builder.credits(batch_of(dialogue), [credit], models)
    [terms] = example.terms
    assert {len(ids) for ids in terms.top_ids} == {5}
    assert len(terms.top_ids) == len(terms.sampled)
    for turn in (1, 3):
        assert set(credit.distil[turn].top_ids) <= set(terms.top_ids)


def test_the_turn_of_the_answer_can_be_left_out(tokenizer: Any) -> None:
    models = Teachers(tokenizer)
    answered, cut = build_trajectory("a", turns=3), build_trajectory("b", turns=3, outcome="out_of_turns")
    only = build_trajectory("c", turns=1)
    found = {
        credit.of: sorted(credit.distil) for credit in OPSD(answers=False).credit(batch_of(answered, cut, only), models)
    }
    assert found == {"a": [1, 3], "b": [1, 3, 5]}
    with pytest.raises(SweetError, match="No dialogue has a turn") as error:
        OPSD(answers=False).credit(batch_of(only), models)
    assert error.value.where == "rollouts-1"


def test_turns_that_the_teacher_cannot_read_are_left_out(tokenizer: Any) -> None:
    dialogue = build_trajectory("t", turns=3)
    encoder = DialogueEncoder(ChatEncoder(tokenizer), "paper", None)
    lengths = [len(encoder.encode(dialogue, informed=informed).sequences[-1].ids) for informed in (False, True)]
    models = Teachers(tokenizer, max_length=lengths[0])
    [credit] = OPSD().credit(batch_of(dialogue), models)
    assert lengths[0] < lengths[1]
    assert max(credit.distil) == 5
    assert 1 not in credit.distil, "the information takes the place of an early turn"


def test_dialogues_that_a_fault_ended_do_not_count(tokenizer: Any) -> None:
    models = Teachers(tokenizer)
    dialogues = build_trajectory("a", turns=2), build_trajectory("b", turns=2, outcome="human_error")
    credits: list[Credit] = OPSD().credit(batch_of(*dialogues), models)
    assert [credit.of for credit in credits] == ["a"]


def test_wrong_values_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, make_agent(tmp_path / "agent"), tasks=1)
    for wrong in ("teacher=big", "k=0", "rate=0", "bound=0.5", "form=all"):
        with pytest.raises(UsageError, match="does not take this value"):
            run_train_actor(run, TrainActorConfig(algorithm="opsd", rule_option=[wrong], device="cpu"), Silent())


@pytest.mark.parametrize("options", [[], ["form=top", "k=4", "teacher=average"]])
def test_a_training_is_planned_learns_and_resumes_to_the_same_weights(tmp_path: Path, options: list[str]) -> None:
    run = make_run(tmp_path, make_agent(tmp_path / "agent"), tasks=4)
    config = TrainActorConfig(
        algorithm="opsd", rule_option=options, epochs=3, batch=4, lr=1e-3, save_every=2, device="cpu"
    )
    planned = plan_train_actor(run, config, Silent()).work
    assert (planned.examples, planned.steps) == (12, 9)
    copying = Copying(run, 5, "train-actor")
    whole = run_train_actor(run, config, copying)
    killed = copying.killed()
    again = run_train_actor(killed, config.model_copy(update={"resume": True}), Silent())
    assert torch.equal(weights(run.file(whole.artifacts[0])), weights(killed.file(again.artifacts[0])))
    assert not torch.equal(weights(run.file(whole.artifacts[0])), weights(tmp_path / "agent"))
    if "form=top" in options:  # the text is not the model's own, so the sampled form estimates nothing here
        before, after = divergence(run, str(tmp_path / "agent")), divergence(run, str(run.file(whole.artifacts[0])))
        assert after < 0.9 * before
    rows = [json.loads(line) for line in (run.path / "logs" / "train-actor-1.jsonl").read_text().splitlines()]
    assert rows[0]["ratio"] == pytest.approx(1, abs=1e-3), "the policy itself sampled"


def divergence(run: Run, agent: str) -> float:
    """Mean of KL(agent( | o) || start( | o, c)) over the tokens of the run's dialogues."""
    base = str(run.path.parent / "agent")
    tokenizer = load_tokenizer(base)
    encoder = DialogueEncoder(ChatEncoder(tokenizer), "paper", None)
    dialogues = list(Sources(run, [run.artifact("scores-1")]).dialogues().values())

    def rows(name: str, *, informed: bool) -> torch.Tensor:
        """Log-probabilities of the whole vocabulary, [tokens, vocabulary]."""
        models = StartingPolicy(encoder, lambda: Scorer(load_model(name, "cpu")), 4096)
        found = models.logprobs("start", dialogues, informed=informed, top=len(tokenizer))
        turns = [turn for one in dialogues for turn in found[one.id].values()]
        ids = torch.tensor([row for turn in turns for row in turn.top_ids])
        values = torch.tensor([row for turn in turns for row in turn.top_logprobs])
        return torch.zeros_like(values).scatter(1, ids, values)

    policy, teacher = rows(agent, informed=False), rows(base, informed=True)
    return float((policy.exp() * (policy - teacher)).sum(1).mean())
