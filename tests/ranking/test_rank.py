"""`sweet rank` with a critic: the sampled turns, equation (3), resuming, the choice of inputs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.errors import InputError, UsageError
from sweet.learn.components import Normalize
from sweet.learn.critic import AdvantageCritic
from sweet.learn.rows import CandidateRow, CandidateTurn
from sweet.learn.tokens import ChatEncoder
from sweet.llm.base import Reply
from sweet.llm.pretrained import load_model, load_tokenizer
from sweet.llm.vllm import option_value
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.ranking.config import RankConfig
from sweet.ranking.metrics import CreditMetrics
from sweet.ranking.plan import plan_rank
from sweet.ranking.stage import run_rank
from sweet.ranking.turns import best_dialogues, first_turns, published_order, sample_turns
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.stages.critics import CriticSettings, load_critic
from sweet.stages.record import Rate
from sweet.tasks.base import Message, ProtocolName, ReferenceContext
from sweet.training.config import TrainCriticConfig
from sweet.training.stage import run_train_critic
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer
from tests.learn.turns import asked_turn
from tests.llm.stand_in import install
from tests.stages.heard import Heard
from tests.stages.learn_runs import make_agent, make_dialogues, make_run

OBSERVATION = [Message(role="system", content="You help."), Message(role="user", content="Write fee.")]
REPLIES = [Reply("What is the rate?"), Reply("It is 5."), Reply("What is the rate?")]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_agent(tmp_path_factory.mktemp("models") / "agent")


@pytest.fixture
def run(tmp_path: Path, agent: str) -> Run:
    run = make_run(tmp_path, agent)
    run_label(run, LabelConfig(), Silent())
    run_train_critic(run, TrainCriticConfig(epochs=2, lr=1e-3), Silent())
    return run


def config(**changes: Any) -> RankConfig:
    return RankConfig(**{"candidates": 3, "fraction": 0.2, "max_tokens": 8, **changes})


def turn(sampler: float | None = None, hidden: str = "C0") -> CandidateTurn:
    logprobs = None if sampler is None else (sampler,)
    return asked_turn(OBSERVATION, hidden, [replace(reply, logprobs=logprobs) for reply in REPLIES])


def mean(model: Any, prompt: list[int], reply: list[int], cut: int = 0) -> float:
    """Return the mean log-probability of `reply[:-cut]` after the prompt, by a full forward."""
    with torch.no_grad():
        table = torch.log_softmax(model(input_ids=torch.tensor([prompt + reply])).logits[0].float(), -1)
    wanted = reply[: len(reply) - cut]
    return sum(float(table[len(prompt) + i - 1, token]) for i, token in enumerate(wanted)) / len(wanted)


@pytest.mark.parametrize("normalize", ["turn", "none"])
@pytest.mark.parametrize("informed", [True, False])
def test_an_advantage_is_equation_3(informed: bool, normalize: Normalize) -> None:
    tokenizer = build_tokenizer(TEMPLATES["llama3"])
    model, base = build_model(len(tokenizer), 1), build_model(len(tokenizer), 0)
    critic = AdvantageCritic(model, base, tokenizer, informed=informed, normalize=normalize)
    found = critic.judge([turn(), turn(hidden="other c")])
    encoder = ChatEncoder(tokenizer)
    for verdicts, hidden in zip(found, ("C0", "other c"), strict=True):
        prompt = encoder.prompts([OBSERVATION], hidden=hidden if informed else None)[0]
        for verdict, reply in zip(verdicts, encoder.replies(REPLIES), strict=True):
            assert verdict.logprob == pytest.approx(mean(model, prompt, reply), abs=1e-4)
            expected = mean(model, prompt, reply) - mean(base, prompt, reply)
            expected *= len(reply) if normalize == "none" else 1
            assert verdict.advantage == pytest.approx(expected, abs=1e-3)
            assert verdict.tokens == len(reply)
    assert found[0][0] == found[0][2]
    assert (found[0][0].advantage == found[1][0].advantage) != informed


def test_a_critic_that_does_not_average_ranks_by_sums(tmp_path: Path, agent: str) -> None:
    run = make_run(tmp_path, agent)
    run_label(run, LabelConfig(), Silent())
    run_train_critic(run, TrainCriticConfig(epochs=1, lr=1e-3, normalize="none"), Silent())
    ranked = run_rank(run, config(), Silent()).artifacts[0]
    for row in read_jsonl(run.file(ranked), CandidateRow):
        assert row.basis == "summed"
        for one in row.candidates:
            assert one.logprob is not None
            assert one.reference is not None
            assert one.tokens is not None
            assert one.advantage == pytest.approx((one.logprob - one.reference) * one.tokens, abs=2e-5)


def test_an_untrained_critic_has_no_advantage_except_with_upstreams_protocol() -> None:
    tokenizer = build_tokenizer(TEMPLATES["llama3"])
    base = build_model(len(tokenizer))
    paper = AdvantageCritic(base, base, tokenizer).judge([turn()])[0]
    assert [verdict.advantage for verdict in paper] == pytest.approx([0.0] * 3, abs=1e-6)
    upstream = AdvantageCritic(base, base, tokenizer, protocol="upstream").judge([turn()])[0]
    assert all(abs(verdict.advantage) > 1e-3 for verdict in upstream)


@pytest.mark.parametrize("context", ["hidden", "dialogue"])
@pytest.mark.parametrize("protocol", ["paper", "upstream"])
def test_the_context_of_the_reference_is_independent_of_the_protocol(
    protocol: ProtocolName, context: ReferenceContext
) -> None:
    tokenizer = build_tokenizer(TEMPLATES["llama3"])
    model, base = build_model(len(tokenizer), 1), build_model(len(tokenizer), 0)
    critic = AdvantageCritic(model, base, tokenizer, protocol=protocol, reference_context=context)
    usual = AdvantageCritic(model, base, tokenizer, protocol=protocol)
    encoder = ChatEncoder(tokenizer)
    hidden = "C0" if context == "hidden" else None
    prompt = encoder.prompts([OBSERVATION], hidden=hidden, protocol=protocol)[0]
    verdicts = critic.judge([turn()])[0]
    for verdict, known, reply in zip(verdicts, usual.judge([turn()])[0], encoder.replies(REPLIES), strict=True):
        assert verdict.reference == pytest.approx(mean(base, prompt, reply), abs=1e-4)
        assert verdict.logprob == known.logprob, "the critic reads the same in both"
    sampler = critic.judge([turn(sampler=-1.25)])[0][0].reference
    assert (sampler == -1.25) == (protocol == "upstream" and context == "dialogue"), "the sampler did not see c"


def test_the_context_of_the_reference_is_recorded(run: Run, agent: str) -> None:
    hidden = run_rank(run, config(reference_context="hidden"), Silent()).artifacts[0]
    again = RankConfig(replies=hidden.id, reference_context="dialogue")
    dialogue = run_rank(run, again, Silent()).artifacts[0]
    upstream = run_rank(run, RankConfig(replies=hidden.id, protocol="upstream"), Silent()).artifacts[0]
    recorded = [(made.meta["protocol"], made.meta["reference_context"]) for made in (hidden, dialogue, upstream)]
    assert recorded == [("paper", "hidden"), ("paper", "dialogue"), ("upstream", "dialogue")]
    hidden_rows, rows = (
        sorted(read_jsonl(run.file(made), CandidateRow), key=lambda row: row.key) for made in (hidden, dialogue)
    )
    tokenizer, base = load_tokenizer(agent), load_model(agent, "cpu")
    encoder = ChatEncoder(tokenizer)
    for first, second in zip(hidden_rows, rows, strict=True):
        prompt = encoder.prompts([second.observation])[0]
        for one, other in zip(first.candidates, second.candidates, strict=True):
            assert one.text == other.text
            assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
            reply = encoder.replies([other.reply])[0]
            assert other.reference == pytest.approx(mean(base, prompt, reply), abs=1e-4)


@pytest.mark.parametrize("variant", ["regression", "no-info"])
def test_a_critic_without_such_a_reference_refuses_its_context(tmp_path: Path, agent: str, variant: str) -> None:
    run = make_run(tmp_path, agent)
    with run.attempt("train-critic", config()) as attempt:
        critic = attempt.finish_artifact(attempt.start_artifact("critic", suffix="", meta={"variant": variant}))
    asked = config(from_=critic.id, reference_context="dialogue", rollouts="rollouts-1")
    for call in (plan_rank, run_rank):
        with pytest.raises(UsageError, match=f"{critic.id} ") as caught:
            call(run, asked, Silent())
        assert "--reference-context" in f"{caught.value.where} {caught.value.fix}"


def test_upstream_counts_the_header_omits_the_end_and_uses_the_samplers_mean() -> None:
    tokenizer = build_tokenizer(TEMPLATES["llama3"])
    model, base = build_model(len(tokenizer), 1), build_model(len(tokenizer), 0)
    critic = AdvantageCritic(model, base, tokenizer, protocol="upstream")
    encoder = ChatEncoder(tokenizer)
    informed = encoder.prompts([OBSERVATION], hidden="C0", protocol="upstream")[0]
    bare = encoder.prompts([OBSERVATION])[0]
    reply = encoder.replies(REPLIES)[0]
    verdict = critic.judge([turn()])[0][0]
    assert verdict.tokens == len(reply) - 1 + 4
    assert verdict.logprob == pytest.approx(mean(model, informed[:-4], informed[-4:] + reply, cut=1), abs=1e-4)
    assert verdict.reference == pytest.approx(mean(base, bare, reply), abs=1e-4)
    assert critic.judge([turn(sampler=-1.25)])[0][0].reference == -1.25


def test_sampled_turns_depend_only_on_the_seed() -> None:
    dialogues = [trajectory for trajectory, _ in make_dialogues()]
    turns = sum(len(trajectory.agent_turns) for trajectory in dialogues)
    drawn = sample_turns(dialogues, seed=0, limit=turns // 5)
    assert len(drawn) == turns // 5
    assert sample_turns(dialogues[::-1], seed=0, limit=turns // 5) == drawn
    assert set(sample_turns(dialogues, seed=1, limit=turns // 5)) != set(drawn)
    assert set(sample_turns(dialogues, seed=0, limit=turns // 2)) > set(drawn)
    everything = [name for name, _ in sample_turns(dialogues, seed=0, limit=turns + 1)]
    assert len(everything) == turns
    changes = sum(a != b for a, b in pairwise(everything))
    assert changes == len(dialogues) - 1, "turns of one dialogue are adjacent"


def test_turns_of_the_best_dialogue_of_each_task(run: Run) -> None:
    dialogues = [trajectory for trajectory, _ in make_dialogues()]
    rewards = {trajectory.id: reward for trajectory, reward in make_dialogues()}
    best = [one for one in dialogues if one.sample == 0]
    assert best_dialogues(dialogues, rewards) == best
    unknown = {**rewards, best[0].id: None}
    assert best_dialogues(dialogues, unknown)[0] == next(one for one in dialogues if one.sample == 2), "0.2 beats 0.1"
    equal = best_dialogues(dialogues, dict.fromkeys(rewards, 1.0))
    assert equal == best_dialogues(dialogues[::-1], dict.fromkeys(rewards, 1.0))[::-1], "in any order the same"
    assert [one.task_id for one in equal] == [one.task_id for one in best]
    made = run_rank(run, config(dialogues="best"), Silent()).artifacts[0]
    keys = {row.key for row in read_jsonl(run.file(made), CandidateRow)}
    turns = sum(len(dialogue.agent_turns) for dialogue in dialogues)
    assert len(keys) == -(-turns // 5), "the share is one of all turns"
    assert keys == set(sample_turns(best, seed=0, limit=len(keys)))
    manifest = run.manifest()
    assert [ref.id for ref in manifest.attempts[-1].inputs] == ["critic-1", "rollouts-1", "scores-1"]
    every = run_rank(run, config(dialogues="best", fraction=1.0), Silent()).artifacts[0]
    assert every.rows == sum(len(dialogue.agent_turns) for dialogue in best)
    with pytest.raises(UsageError, match="an option of the sampling"):
        run_rank(run, config(dialogues="best", replies="candidates-1"), Silent())


def test_best_dialogues_are_known_by_the_scores_of_these(run: Run) -> None:
    other = run.find("rollouts", needed_by="this test")
    with run.attempt("rollout", RankConfig()) as attempt:
        draft = attempt.start_artifact("rollouts", meta={"split": "train"})
        draft.path.write_bytes(run.file(other).read_bytes())
        attempt.finish_artifact(draft, rows=15)
    with pytest.raises(UsageError, match="rollouts-2 has no scores") as error:
        run_rank(run, config(dialogues="best", judge="random", rollouts="rollouts-2"), Silent())
    assert error.value.fix == f"sweet eval {run.path} --from rollouts-2"


def test_protocol_upstream_ranks_every_turn_of_the_first_dialogues(run: Run) -> None:
    written = [trajectory for trajectory, _ in make_dialogues()]
    dialogues = published_order(written)
    assert [(one.sample, one.task_id) for one in dialogues[4:6]] == [(0, "task-4"), (1, "task-0")]
    assert published_order(written[::-1]) == dialogues, "whichever dialogue ended first"
    expected = [(dialogue.id, index) for dialogue in dialogues[:3] for index in dialogue.agent_turns]
    assert first_turns(dialogues, fraction=0.2) == expected
    assert first_turns(dialogues, fraction=0.2, limit=2) == expected[:2]
    assert len(first_turns(dialogues)) == sum(len(dialogue.agent_turns) for dialogue in dialogues)
    made = run_rank(run, config(protocol="upstream"), Silent()).artifacts[0]
    assert sorted(row.key for row in read_jsonl(run.file(made), CandidateRow)) == sorted(expected)
    sampled = {row.key for row in read_jsonl(run.file(run_rank(run, config(), Silent()).artifacts[0]), CandidateRow)}
    turns = sum(len(dialogue.agent_turns) for dialogue in dialogues)
    assert sampled == set(sample_turns(dialogues, seed=0, limit=-(-turns // 5))) != set(expected)


def test_an_interrupted_ranking_of_other_turns_is_not_resumed(run: Run) -> None:
    """As one of protocol upstream whose file was edited."""
    made = run_rank(run, config(protocol="upstream"), Silent()).artifacts[0]
    others = run_rank(run, config(), Silent()).artifacts[0]
    path = run.file(made)
    chosen = {row.key for row in read_jsonl(path, CandidateRow)}
    rows = run.file(others).read_bytes().splitlines(keepends=True)
    other = [row for row in rows if CandidateRow.model_validate_json(row).key not in chosen]
    assert other
    path.write_bytes(b"".join(other[:2]))
    with pytest.raises(InputError, match="turns that are not chosen"):
        run_rank(run, config(protocol="upstream"), Silent())


def test_an_agent_without_an_address_is_served_by_vllm_during_the_ranking(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm = install(tmp_path, monkeypatch)
    vllm.show_gpus("60000, 80000")
    asked = config(agent="org/model", vllm_options=["--seed", "1"], device="cpu", local_engine="vllm")
    result = run_rank(run, asked, Silent())
    (start,) = vllm.starts()
    assert option_value(start["args"], "--seed") == "1"
    assert option_value(start["args"], "--gpu-memory-utilization") == "0.36", "the critic needs the other half"
    assert vllm.asked() == ["org/model"] * result.metrics.turns
    assert vllm.all_gone()
    assert run.manifest().attempts[-1].environment["agent_engine"] == "vllm"


def test_ranking_writes_the_candidates_and_the_given_reply(run: Run, agent: str) -> None:
    result = run_rank(run, config(), Silent())
    rows = list(read_jsonl(run.file(result.artifacts[0]), CandidateRow))
    dialogues = {trajectory.id: trajectory for trajectory, _ in make_dialogues()}
    assert len(rows) == result.artifacts[0].rows == result.metrics.turns
    assert result.metrics.failed == 0
    assert result.artifacts[0].meta == {
        "agent": agent,
        "judge": "critic",
        "critic": "critic-1",
        "judge_model": None,
        "judge_prompt": None,
        "informed": True,
        "reference": None,
        "turn_tokens": "separate",
        "protocol": "paper",
        "reference_context": "hidden",
        "replies": None,
        "sim": None,
    }
    critic_path, base_path = str(run.file(run.artifact("critic-1"))), agent
    tokenizer = load_tokenizer(critic_path)
    encoder = ChatEncoder(tokenizer)
    model, base = load_model(critic_path, "cpu"), load_model(base_path, "cpu")
    for row in rows:
        assert (len(row.candidates), row.basis, row.unjudged) == (3, "critic", 0)
        assert row.taken is not None
        said = dialogues[row.trajectory_id].dialogue_history[row.turn].said
        assert row.taken.text == said
        prompt = encoder.prompts([row.observation], hidden=dialogues[row.trajectory_id].task.hidden)[0]
        for one in (*row.candidates, row.taken):
            reply = encoder.replies([one.reply])[0]
            expected = mean(model, prompt, reply) - mean(base, prompt, reply)
            assert one.advantage == pytest.approx(expected, abs=1e-4)


def test_an_interrupted_ranking_resumes(run: Run) -> None:
    first = run_rank(run, config(), Silent())
    path = run.file(first.artifacts[0])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:50])
    again = run_rank(run, config(concurrency=2), Silent())
    assert again.artifacts[0].id == first.artifacts[0].id
    assert path.read_bytes().startswith(b"".join(lines[:2]))
    keys = [(row["trajectory_id"], row["turn"]) for row in map(json.loads, path.read_text().splitlines())]
    assert len(set(keys)) == len(keys) == first.artifacts[0].rows
    before = {(row["trajectory_id"], row["turn"]): row["candidates"] for row in map(json.loads, lines)}
    after = {
        (row["trajectory_id"], row["turn"]): row["candidates"] for row in map(json.loads, path.read_text().splitlines())
    }
    assert {k: [c["text"] for c in v] for k, v in after.items()} == {
        k: [c["text"] for c in v] for k, v in before.items()
    }


def test_a_reference_with_another_vocabulary_is_refused(run: Run, tmp_path: Path) -> None:
    other = make_agent(tmp_path / "other", template="llama3")
    with pytest.raises(UsageError, match="chat templates") as caught:
        run_rank(run, config(reference=other), Silent())
    assert "--reference" in str(caught.value.fix)
    data = json.loads((Path(other) / "tokenizer.json").read_text())
    vocabulary = data["model"]["vocab"]
    a, b = list(vocabulary)[-2:]
    vocabulary[a], vocabulary[b] = vocabulary[b], vocabulary[a]
    (Path(other) / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(UsageError, match="vocabularies"):
        run_rank(run, config(reference=other), Silent())


def test_a_critic_without_a_recorded_base_needs_a_reference(run: Run, agent: str) -> None:
    artifact = run.artifact("critic-1").model_copy(update={"meta": {}})
    with pytest.raises(UsageError, match="which model it started from") as caught:
        load_critic(run, artifact, Silent(), CriticSettings())
    assert "--reference" in str(caught.value.fix)
    load_critic(run, artifact, Silent(), CriticSettings(reference=agent))


def test_without_a_critic_the_error_names_train_critic(tmp_path: Path, agent: str) -> None:
    with pytest.raises(UsageError, match="critic") as caught:
        run_rank(make_run(tmp_path, agent), config(), Silent())
    assert "sweet train-critic" in str(caught.value.fix)


def test_the_newest_dialogues_of_the_same_split_are_ranked(run: Run, agent: str) -> None:
    from tests.stages.learn_runs import put

    dialogues = [make_dialogues()[0][0]]
    put(run, "rollout", "rollouts", dialogues, agent=agent, tasks="toy", split="train", tasks_digest="of more")
    put(run, "rollout", "rollouts", dialogues, agent=agent, tasks="toy", split="test", tasks_digest="of others")
    assert run.input_of(run_rank(run, config(), Silent()).artifacts[0], "rollouts").id == "rollouts-2"


def test_a_critic_trained_from_the_runs_own_actor_uses_it_as_reference_after_a_move(tmp_path: Path, agent: str) -> None:
    """The critic of a second round, in a run that was moved afterwards."""
    from tests.stages.learn_runs import put, score

    run = make_run(tmp_path, agent)
    with run.attempt("train-actor", config()) as attempt:
        draft = attempt.start_artifact("actor", suffix="")
        shutil.copytree(agent, draft.path, dirs_exist_ok=True)
        actor = run.file(attempt.finish_artifact(draft))
    dialogues = make_dialogues()
    played = put(run, "rollout", "rollouts", [t for t, _ in dialogues], agent=str(actor), tasks="toy", split="train")
    put(run, "eval", "scores", [score(t, reward) for t, reward in dialogues], [played])
    run_label(run, LabelConfig(), Silent())
    critic = run_train_critic(run, TrainCriticConfig(epochs=1, lr=1e-3), Silent()).artifacts[0]
    assert critic.meta["base"] == str(actor)

    moved = Run.open(run.path.rename(tmp_path / "moved"))
    candidates = run_rank(moved, config(), Silent()).artifacts[0]
    assert candidates.meta["agent"] == str(moved.path / "actor" / "actor-1")
    assert moved.input_of(candidates, "rollouts").id == "rollouts-2"


def test_dialogues_on_other_tasks_are_not_ranked_by_default(run: Run) -> None:
    from tests.stages.learn_runs import put

    put(run, "rollout", "rollouts", [make_dialogues()[0][0]], agent="x", tasks="toy", split="test")
    assert run.input_of(run_rank(run, config(), Silent()).artifacts[0], "rollouts").id == "rollouts-1"


def test_a_critic_whose_ranking_is_at_chance_is_warned_of(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings = []
    for share in (0.5, 0.9):
        agreement = Rate(value=share, ci_low=share - 0.1, ci_high=share + 0.1)
        known = CreditMetrics(credit={}, couples=40, agreement=agreement, agreement_by_kind={})
        with monkeypatch.context() as patch:
            patch.setattr("sweet.ranking.stage.credit_metrics", lambda *_, known=known: known)
            heard = Heard()
            run_rank(run, config(seed=int(10 * share)), heard)
        warnings.append([text for text in heard.warnings if "better than chance" in text])
    assert len(warnings[0]) == 1
    assert "it puts 50.0 % [40.0, 60.0] of the couples of replies in candidates-1 in order" in warnings[0][0]
    assert [text.count("candidates-1") for text in warnings[1]] == [1], "before the second, of the first"
