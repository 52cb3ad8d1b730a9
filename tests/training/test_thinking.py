"""Which tokens of a thinking agent's turns count is an option of the trainings, recorded, and followed by rankings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.errors import UsageError
from sweet.judges.critic import CriticJudge
from sweet.learn.rows import Candidate, CandidateRow, CandidateTurn, Pair
from sweet.learn.tokens import ChatEncoder
from sweet.llm.base import Reply
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.stages.critics import CriticSettings, load_critic
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.stage import plan_train_actor, run_train_actor, run_train_critic
from tests.learn.thinking import play, thinking_agent, thinking_tokenizer
from tests.stages.learn_runs import make_run, put, score
from tests.training.test_train import weights

FAMILY = "qwen3"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> str:
    return thinking_agent(tmp_path_factory.mktemp("models") / "agent", FAMILY, steps=1)


@pytest.fixture
def run(tmp_path: Path, agent: str) -> Run:
    """Preferences between dialogues, and pairs of replies, of a thinking agent."""
    tokenizer = thinking_tokenizer(FAMILY)
    run = Run.create(tmp_path / "run", task="code")
    dialogues = [
        play(tokenizer, FAMILY, 2, name=f"{5 if good else 7}-{task}", task=f"task-{task}")
        for task in range(3)
        for good in (True, False)
    ]
    rollouts = put(run, "rollout", "rollouts", dialogues, agent=agent, tasks="toy", split="train")
    put(run, "eval", "scores", [score(d, 1.0 if d.id.startswith("5") else 0.1) for d in dialogues], [rollouts])
    run_label(run, LabelConfig(), Silent())
    rows = []
    for number, (good, bad) in enumerate(zip(dialogues[::2], dialogues[1::2], strict=True)):
        rows.append(
            Pair(
                id=f"p{number}",
                task_id=good.task_id,
                trajectory_id=good.id,
                turn=3,
                observation=tuple(good.observation(3, None)),
                chosen=Candidate.of(Reply.of(good.dialogue_history[3]), 0.4),
                rejected=Candidate.of(Reply.of(bad.dialogue_history[3]), -0.2),
                prompt_token_ids=good.prompt_ids(3),
            )
        )
    put(run, "pair", "pairs", rows, [rollouts])
    return run


def critic_config(**changes: Any) -> TrainCriticConfig:
    return TrainCriticConfig(**{"epochs": 1, "holdout": 0.0, "lr": 1e-3, "device": "cpu", **changes})


@pytest.mark.parametrize("method", ["sweet", "multi-turn-dpo", "rft", "sft"])
def test_every_training_of_an_actor_counts_what_is_asked_for(run: Run, method: Any) -> None:
    trained = []
    for counted in (None, "both", "reply", "separate"):
        config = TrainActorConfig(algorithm=method, epochs=1, lr=1e-3, device="cpu", turn_tokens=counted)
        made = run_train_actor(run, config, Silent()).artifacts[0]
        assert made.meta["turn_tokens"] == (counted or "both")
        trained.append(weights(run.file(made)))
    usual, *others = trained
    assert torch.equal(usual, others[0])
    assert not torch.equal(others[0], others[1])
    assert not torch.equal(others[1], others[2])


def test_trees_train_as_plain_sequences_do(run: Run) -> None:
    found = []
    for packing in ("tree", "plain"):
        made = run_train_critic(run, critic_config(packing=packing, lr=1e-2, epochs=2), Silent()).artifacts[0]
        found.append(weights(run.file(made)))
    assert float((found[0] - found[1]).norm() / found[1].norm()) < 1e-4


def test_a_ranking_averages_as_its_critic_was_trained(run: Run, agent: str) -> None:
    """By default each by itself; the numbers are those of the replies' ids after the prompt with c."""
    critics = [run_train_critic(run, critic_config(turn_tokens=c), Silent()).artifacts[0] for c in (None, "reply")]
    assert [critic.meta["turn_tokens"] for critic in critics] == ["separate", "reply"]
    options: dict[str, Any] = {"candidates": 2, "limit": 1, "max_tokens": 24, "device": "cpu"}
    for critic, counted in zip(critics, ("separate", "reply"), strict=True):
        made = run_rank(run, RankConfig(from_=critic.id, **options), Silent()).artifacts[0]
        assert made.meta["turn_tokens"] == counted
    [row] = read_jsonl(run.file(made), CandidateRow)
    assert row.prompt_token_ids == run_prompt(agent, row)
    tokenizer = load_tokenizer(agent)
    task = next(d for d in make_tasks(run) if d.id == row.trajectory_id)
    for counted in ("both", "reply", "separate"):
        asked = run_rank(
            run, RankConfig(replies=made.id, from_=critics[0].id, turn_tokens=counted, device="cpu"), Silent()
        )
        assert asked.artifacts[0].meta["turn_tokens"] == counted
        [judged] = read_jsonl(run.file(asked.artifacts[0]), CandidateRow)
        model, base = load_model(str(run.file(critics[0])), "cpu"), load_model(agent, "cpu")
        encoder = ChatEncoder(tokenizer)
        [prompt] = encoder.prompts([row.observation], hidden=task.task.hidden)
        assert judged.taken is not None
        for one in (judged.taken, *judged.candidates):
            assert one.advantage == pytest.approx(
                mean(model, encoder, prompt, one, counted) - mean(base, encoder, prompt, one, counted), abs=1e-5
            )


def make_tasks(run: Run) -> list[Any]:
    from sweet.tasks.trajectory import Trajectory

    return list(read_jsonl(run.file(run.artifact("rollouts-1")), Trajectory))


def run_prompt(agent: str, row: CandidateRow) -> tuple[int, ...]:
    return tuple(ChatEncoder(load_tokenizer(agent)).prompts([row.observation])[0])


def mean(model: Any, encoder: ChatEncoder, prompt: list[int], one: Candidate, counted: str) -> float:
    """The mean log-probability of a reply by the model's own forward pass."""
    reply = one.reply
    [found] = encoder.encode_replies([reply])
    ids = [*prompt, *found.ids]
    with torch.no_grad():
        table = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0].float(), -1)
    values = torch.tensor([float(table[i - 1, ids[i]]) for i in range(len(prompt), len(ids))])
    thought, said = values[: found.thought], values[found.thought :]
    if counted == "both" or not found.thought:
        return float(values.mean())
    return float(said.mean() if counted == "reply" else (thought.mean() + said.mean()) / 2)


def test_the_judge_of_a_dialogue_under_way_reads_thoughts(run: Run) -> None:
    """As `rollout --best-of` asks it: two replies that differ in their thoughts alone."""
    critic = run_train_critic(run, critic_config(), Silent()).artifacts[0]
    dialogue = make_tasks(run)[0]
    replies = (Reply("Is it 5?", "stop", thought="It is 5 per hour."), Reply("Is it 5?", "stop", thought="No limit."))
    turn = CandidateTurn(dialogue.id, dialogue.task, 1, tuple(dialogue.observation(1, None)), replies)
    scores = {}
    for counted in ("both", "reply", "separate"):
        loaded = load_critic(run, critic, Silent(), CriticSettings("cpu", turn_tokens=counted))
        [(_, (first, second))] = CriticJudge(loaded, "critic").judge_now([turn])
        assert isinstance(first, Candidate)
        assert isinstance(second, Candidate)
        assert first.thought == "It is 5 per hour."
        assert first.logprob != second.logprob
        scores[counted] = first.logprob
    assert len(set(scores.values())) == 3


@pytest.mark.parametrize(
    "changes", [{"variant": "regression"}, {"protocol": "upstream"}], ids=["regression", "upstream"]
)
def test_what_has_no_such_mean_refuses_the_option(run: Run, changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        run_train_critic(run, critic_config(turn_tokens="reply", **changes), Silent())
    assert "--turn-tokens" in f"{caught.value.where} {caught.value.fix}"
    critic = run_train_critic(run, critic_config(**changes), Silent()).artifacts[0]
    assert critic.meta.get("turn_tokens") == ("both" if "protocol" in changes else None)
    asked = RankConfig(from_=critic.id, turn_tokens="reply", device="cpu")
    with pytest.raises(UsageError) as caught:
        run_rank(run, asked, Silent())
    assert "--turn-tokens" in f"{caught.value.where} {caught.value.fix}"


def test_openrlhf_counts_all_tokens(run: Run) -> None:
    with pytest.raises(UsageError) as caught:
        plan_train_actor(run, TrainActorConfig(engine="openrlhf", turn_tokens="reply"), Silent())
    assert "--turn-tokens both" in str(caught.value.fix)


def test_runs_without_thoughts_train_the_same_whatever_counts(tmp_path: Path, agent: str) -> None:
    run = make_run(tmp_path, agent)
    run_label(run, LabelConfig(), Silent())
    found = [
        weights(run.file(run_train_critic(run, critic_config(turn_tokens=counted), Silent()).artifacts[0]))
        for counted in ("both", "reply", "separate")
    ]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
