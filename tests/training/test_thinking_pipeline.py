"""A tiny thinking model through the whole pipeline: what it thinks and says is learned from the ids that it read, the
engine's log-probabilities are the training's, and the actor that comes out thinks on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.learn.logprobs import Scorer, span_logprobs
from sweet.learn.rows import CandidateRow, Pair
from sweet.learn.tokens import ChatEncoder
from sweet.learn.trainee import save_model
from sweet.llm.base import Reply, Sampling
from sweet.llm.embedded import EmbeddedClient
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.preferences.config import LabelConfig, PairConfig
from sweet.preferences.label import run_label
from sweet.preferences.pair import run_pair
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.artifacts import agent_system
from sweet.stages.base import Silent
from sweet.tasks.trajectory import Trajectory, Turn, shared_prompts
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.stage import run_train_actor, run_train_critic
from tests.learn.builders import REQUEST, build_trajectory
from tests.learn.thinking import (
    ENDS,
    OPENINGS,
    THINKING,
    teach,
    thinking_agent,
    thinking_model,
    thinking_tokenizer,
)

CONTEXT = 4096


@pytest.mark.parametrize("family", THINKING)
def test_the_engines_logprobs_are_those_of_the_training(tmp_path: Path, family: str) -> None:
    """Three turns at temperature 1, some of whose thoughts are ended by the limit: with trees and without."""
    agent = thinking_agent(tmp_path / "agent", family, steps=30)
    client = EmbeddedClient.load(agent, device="cpu")
    history = [Turn(role="user", content=REQUEST)]
    prompts: dict[int, tuple[int, ...]] = {}
    recorded: list[Reply] = []
    try:
        for number in range(3):
            observed = build_trajectory().model_copy(update={"dialogue_history": tuple(history)})
            sampling = Sampling(max_tokens=60, max_thought_tokens=4 if family == "r1" else 20, seed=number)
            completion = asyncio.run(client.chat(observed.messages(None), sampling))
            [reply] = completion.replies
            assert completion.prompt_token_ids is not None
            prompts[len(history)] = completion.prompt_token_ids
            recorded.append(reply)
            history.append(
                Turn(
                    role="assistant",
                    content=reply.text,
                    output=reply.text,
                    thought=reply.thought,
                    thought_tokens=reply.thought_tokens,
                    token_ids=reply.token_ids,
                    finish_reason=reply.finish_reason,
                )
            )
            history.append(Turn(role="user", content=f"It is {number} per hour."))
    finally:
        asyncio.run(client.aclose())
    assert recorded[0].thought
    assert recorded[0].thought_tokens
    trajectory = build_trajectory().model_copy(update={"dialogue_history": shared_prompts(history, prompts)})
    encoder = ChatEncoder(load_tokenizer(agent))
    rows = encoder.dialogue(trajectory, None).sequences
    ids = [row.ids[span.start : span.stop] for row in rows for span in row.spans]
    assert [one[: len(reply.token_ids or ())] for one, reply in zip(ids, recorded, strict=True)] == [
        reply.token_ids for reply in recorded
    ]
    for share in (True, False):
        scored = span_logprobs(Scorer(load_model(agent, "cpu"), share=share), rows)
        sums = [float(part) for each, _ in scored for part in each]
        expected = [sum(reply.logprobs or ()) for reply in recorded]
        assert sums == pytest.approx(expected, rel=1e-4, abs=1e-3)


def micro_agent(folder: Path, run: Run, family: str, prompts: Path) -> str:
    """A tiny model that has learned to think, and to ask, to answer a micro task rightly, or wrongly."""
    config = RolloutConfig(num_tasks=1, samples=1, max_turns=1, prompts=prompts, device="cpu")
    artifact = run_rollout(run, config, Silent()).artifacts[0]
    system = agent_system(run, artifact)
    tokenizer = thinking_tokenizer(family)
    model = thinking_model(tokenizer)
    model.config.max_position_embeddings = CONTEXT
    lessons = []
    for dialogue in read_jsonl(run.file(artifact), Trajectory):
        assert len(dialogue.agent_turns) == 1
        rows = [{"role": m.role, "content": m.content} for m in dialogue.observation(1, system)]
        prompt = tokenizer.apply_chat_template(rows, tokenize=False, add_generation_prompt=True)
        wrong = dialogue.task.ground_truth.partition("\n")[0] + "\n    return -1"
        for thought, said in (
            ("I know it.", f"I WANT TO ANSWER:\n{dialogue.task.ground_truth}"),
            ("I do not know.", f"I WANT TO ANSWER:\n{wrong}"),
            ("Is there a rate?", "What is the rate per hour?"),
        ):
            lessons.append((prompt, OPENINGS[family].format(thought) + said + ENDS[family]))
    teach(model, tokenizer, lessons, steps=80)
    save_model(model, tokenizer, folder)
    return str(folder)


def test_a_thinking_model_goes_through_the_pipeline(tmp_path: Path) -> None:
    family = "qwen3"
    folder = tmp_path / "agent"
    folder.mkdir()
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    (prompts / "agent.txt").write_text("Ask, or answer.")
    agent = micro_agent(folder, Run.create(tmp_path / "lessons", task="code"), family, prompts)
    run = Run.create(tmp_path / "run", task="code")
    limits: dict[str, Any] = {"max_tokens": 200, "max_thought_tokens": 24, "device": "cpu"}
    setting: dict[str, Any] = {"num_tasks": 1, "max_turns": 2, "prompts": prompts, **limits}
    played = run_rollout(run, RolloutConfig(agent=agent, samples=12, **setting), Silent()).artifacts[0]
    dialogues = list(read_jsonl(run.file(played), Trajectory))
    spoken = [dialogue.dialogue_history[i] for dialogue in dialogues for i in dialogue.agent_turns]
    assert sum(bool(turn.thought) and bool(turn.said) for turn in spoken) > 0.4 * len(spoken)
    assert not any(turn.thought in turn.content for turn in spoken if turn.thought)
    run_eval(run, EvalConfig(), Silent())
    run_label(run, LabelConfig(), Silent())
    critic = run_train_critic(run, TrainCriticConfig(epochs=1, holdout=0.0, device="cpu"), Silent()).artifacts[0]
    assert critic.meta["turn_tokens"] == "separate"
    ranked = run_rank(run, RankConfig(fraction=0.5, candidates=4, **limits), Silent()).artifacts[0]
    rows = list(read_jsonl(run.file(ranked), CandidateRow))
    assert all(row.prompt_token_ids for row in rows)
    assert any(one.thought and one.thought_tokens for row in rows for one in row.candidates)
    paired = run_pair(run, PairConfig(), Silent()).artifacts[0]
    pairs = list(read_jsonl(run.file(paired), Pair))
    tokenizer = load_tokenizer(agent)
    encoder = ChatEncoder(tokenizer)
    actor = run_train_actor(run, TrainActorConfig(epochs=1, lr=1e-4, device="cpu"), Silent()).artifacts[0]
    assert actor.meta["turn_tokens"] == "both"
    again = run_rollout(run, RolloutConfig(agent=str(run.file(actor)), **setting), Silent()).artifacts[0]
    said = [t for d in read_jsonl(run.file(again), Trajectory) for t in d.dialogue_history if t.role == "assistant"]
    assert any(turn.thought for turn in said)

    # What was learned of each turn and of each pair is what was read and sampled.
    system = agent_system(run, played)
    exact = 0
    for dialogue in dialogues:
        if dialogue.ended_by_fault:
            continue
        for row in encoder.dialogue(dialogue, system).sequences:
            for span in row.spans:
                turn = dialogue.dialogue_history[span.turn]
                assert turn.token_ids is not None
                assert row.ids[: span.start] == dialogue.prompt_ids(span.turn)
                assert row.ids[span.start : span.start + len(turn.token_ids)] == turn.token_ids
                exact += 1
    assert exact >= len(dialogues)
    for pair in pairs:
        assert pair.prompt_token_ids is not None
        assert pair.chosen.token_ids is not None
        prompt = encoder.prompts([pair.observation])[0]
        assert tuple(prompt) == pair.prompt_token_ids
    assert torch.isfinite(torch.tensor([pair.chosen.advantage for pair in pairs])).all()
