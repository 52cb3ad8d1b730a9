"""Imported dialogues are learned from and continued under the system prompts that they were played with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.learn.rows import CandidateRow
from sweet.llm.pretrained import load_tokenizer
from sweet.llm.template import ChatTemplate
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.prepare import load_dialogues
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_system
from sweet.stages.base import Silent, digest_of
from sweet.stages.meta import TrainedMeta
from sweet.tasks.base import Message
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.kind import system_prompt
from sweet.tasks.trajectory import Trajectory
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.prepare import prepare_critic
from sweet.training.stage import run_train_actor
from tests.datasets.test_published import row, write
from tests.learn.builders import LLAMA31, build_tokenizer
from tests.stages.heard import Heard
from tests.stages.learn_runs import make_agent

POLITE, BRIEF = "You are polite.\nAsk first.", "You are brief."


def published(system: str | None, **changes: Any) -> dict[str, Any]:
    """Return a row of the published layout, each turn of the agent with its prompt as Llama 3.1 reads it."""
    found = row(**changes)
    history = [
        {**entry, "role": "assistant" if entry["role"] in ("agent", "assistant") else "user"}
        for entry in found["dialogue_history"]
    ]
    template = ChatTemplate(build_tokenizer(LLAMA31))
    for index, entry in enumerate(history):
        entry.pop("input", None)
        if entry["role"] == "assistant" and system is not None:
            said = [Message(role=one["role"], content=one["content"]) for one in history[:index]]
            entry["input"] = template.text([Message(role="system", content=system), *said])
    return {**found, "dialogue_history": history}


def rows() -> list[dict[str, Any]]:
    unreadable = row(id="unreadable")
    return [
        published(POLITE, id="polite", reward=1),
        published(POLITE, id="polite-too", reward=0),
        published(BRIEF, id="brief", reward=0),
        published(None, id="none", reward=0),
        unreadable,
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "offline.jsonl", rows())


def test_each_dialogue_keeps_its_own(file: Path, tmp_path: Path) -> None:
    heard = Heard()
    result = run_data_import(file, tmp_path / "run", DataImportConfig(), heard)
    run = Run.open(tmp_path / "run")
    found = {one.id: one for one in read_jsonl(run.file(result.artifacts[0]), Trajectory)}
    assert {name: one.agent_system for name, one in found.items()} == {
        "polite": POLITE,
        "polite-too": POLITE,
        "brief": BRIEF,
        "none": None,
        "unreadable": None,
    }
    packaged = Message(role="system", content=agent_system(run, run.artifact("rollouts-1")))
    assert found["none"].observation(1, packaged.content)[0] == packaged
    assert found["brief"].observation(1, packaged.content)[0].content == BRIEF
    assert result.metrics.as_json() == {
        "trajectories": 5,
        "scores": 4,
        "system_prompts": {digest_of(POLITE): 2, digest_of(BRIEF): 1},
        "without_prompt": 2,
    }
    said = [line.split(" (")[0] for line in heard.said]
    assert said == [
        f"System prompt of the agent in 2 of 5 rows: {digest_of(POLITE)}",
        f"System prompt of the agent in 1 of 5 rows: {digest_of(BRIEF)}",
        "Rows that record no prompt, or none that can be read; the packaged one is taken: 2.",
    ]
    assert not heard.warnings


def test_given_prompts_are_those_of_rows_without_one(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "agent.txt").write_text("You have {turns} turns.")
    run_data_import(file, tmp_path / "run", DataImportConfig(prompts=folder), Silent())
    run = Run.open(tmp_path / "run")
    rollouts = run.artifact("rollouts-1")
    assert agent_system(run, rollouts) == "You have 10 turns."
    assert rollouts.meta["prompts_digest"] == digest_of(["You have {turns} turns."])
    assert {one.agent_system for one in read_jsonl(run.file(rollouts), Trajectory)} == {POLITE, BRIEF, None}


def test_training_and_ranking_read_the_dialogues_own_prompts(file: Path, tmp_path: Path) -> None:
    agent = make_agent(tmp_path / "agent")
    run_data_import(file, tmp_path / "run", DataImportConfig(), Silent())
    run = Run.open(tmp_path / "run")
    run_label(run, LabelConfig(), Silent())
    training, _ = prepare_critic(run, TrainCriticConfig(model=agent, holdout=0.0), Silent(), weights=False)
    tokenizer = load_tokenizer(agent)
    beginnings = {
        tokenizer.decode(training.pool.sequences[index].ids).split("<|im_end|>")[0]
        for example in training.examples
        for index in (*example.chosen, *example.rejected)
    }
    shared = agent_system(run, run.artifact("rollouts-1"))
    assert beginnings == {f"<|im_start|>system\n{text}" for text in (POLITE, BRIEF, shared)}
    ranked = run_rank(
        run, RankConfig(judge="random", agent=agent, candidates=2, max_tokens=2, fraction=1.0), Silent()
    ).artifacts[0]
    seen = {r.trajectory_id: r.observation[0].content for r in read_jsonl(run.file(ranked), CandidateRow)}
    assert seen == {"polite": POLITE, "polite-too": POLITE, "brief": BRIEF, "none": shared, "unreadable": shared}


def test_an_actor_plays_under_the_prompt_that_it_learned(tmp_path: Path) -> None:
    """Wherever its folder is; another prompt is a choice that is said and recorded."""
    agent = make_agent(tmp_path / "agent")
    polite, brief = (published(text, id=text[-6:-1], reward=1) for text in (POLITE, BRIEF))
    twice = [polite, {**polite, "id": "again"}, brief]
    run_data_import(write(tmp_path / "offline.jsonl", twice), tmp_path / "run", DataImportConfig(), Silent())
    run, heard = Run.open(tmp_path / "run"), Heard()
    config = TrainActorConfig(algorithm="rft", model=agent, epochs=1)
    actor = run_train_actor(run, config, heard).artifacts[0]
    assert [line for line in heard.warnings if "system prompts" in line] == [
        "What is learned from has 2 system prompts; the actor plays under that of 2 of 3."
    ]
    assert TrainedMeta.of(actor).agent_system == POLITE
    moved = shutil.copytree(run.file(actor), tmp_path / "moved")
    assert (moved / "prompts-code" / "agent.txt").read_text() == f"{POLITE}\n"
    named: dict[str, Any] = {"tasks": "micro", "num_tasks": 1}
    for model in (actor.id, str(moved)):
        played = load_dialogues(run, RolloutConfig(agent=model, **named), Silent())
        assert system_prompt(played.kind, 10) == POLITE
        assert played.meta(model).agent_system == POLITE
    heard = Heard()
    played = load_dialogues(run, RolloutConfig(agent=actor.id, prompts=Path("packaged"), **named), heard)
    assert played.meta(actor.id).agent_system is None
    assert "learned under another system prompt" in heard.warnings[0]
    other = load_dialogues(run, RolloutConfig(agent=agent, **named), Silent())
    assert other.kind.agent_system() == CodeKind().agent_system()
