"""Several artifacts to learn from: the ids of their dialogues, the starting model, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweet.errors import UsageError
from sweet.learn.tokens import ChatEncoder
from sweet.llm.pretrained import load_tokenizer
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.runs.lineage import input_of
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_system
from sweet.stages.base import Silent
from sweet.training.config import TrainActorConfig, TrainCriticConfig
from sweet.training.examples import DialogueEncoder, ExampleBuilder
from sweet.training.sources import Sources
from sweet.training.stage import run_train_actor, run_train_critic
from tests.stages.learn_runs import make_agent, make_dialogues, put, score

TASKS, SAMPLES = 3, 3


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("agents")
    return [make_agent(folder / str(seed), seed=seed) for seed in (1, 2)]


@pytest.fixture
def run(tmp_path: Path, agents: list[str]) -> Run:
    """Two rounds of dialogues with the same ids, by two agents, with preferences each. In the second round the worst
    dialogues are the best."""
    run = Run.create(tmp_path / "run", task="code")
    for agent, better in zip(agents, (1.0, 0.0), strict=True):
        dialogues = make_dialogues(TASKS, SAMPLES)
        rollouts = put(run, "rollout", "rollouts", [one for one, _ in dialogues], agent=agent)
        scores = [score(one, better if reward == 1 else 1 - better) for one, reward in dialogues]
        put(run, "eval", "scores", scores, [rollouts])
        run_label(run, LabelConfig(), Silent())
    return run


def both(run: Run, kind: str) -> list[Artifact]:
    return [artifact for artifact in run.manifest().artifacts if artifact.kind == kind]


def test_ids_are_prefixed_with_their_rollouts_where_there_are_several(run: Run) -> None:
    first, second = both(run, "preferences")
    together = Sources(run, [first, second])
    alone = Sources(run, [second])
    couples = {(row.chosen, row.rejected) for row in together.preferences()}
    assert {(row.chosen, row.rejected) for row in alone.preferences()} == {
        (chosen.removeprefix("rollouts-2/"), rejected.removeprefix("rollouts-2/"))
        for chosen, rejected in couples
        if chosen.startswith("rollouts-2/")
    }
    assert all(chosen.split("/")[0] == rejected.split("/")[0] for chosen, rejected in couples)
    dialogues = together.dialogues()
    assert len(dialogues) == 2 * TASKS * SAMPLES
    assert {name for pair in couples for name in pair} <= set(dialogues)
    assert all(dialogue.id == name for name, dialogue in dialogues.items())


def test_artifacts_of_the_same_rollouts_share_their_dialogues(run: Run) -> None:
    run_label(run, LabelConfig(from_="scores-1", margin=0.5), Silent())
    first, _, again = both(run, "preferences")
    together = Sources(run, [first, again])
    assert len(together.preferences()) == first.rows + again.rows  # type: ignore[operator]
    assert len(together.dialogues()) == TASKS * SAMPLES
    assert [artifact.id for artifact in together.inputs] == [again.id, first.id, "rollouts-1"]


def test_a_critic_learns_from_all_and_starts_from_the_agent_of_the_last(run: Run, agents: list[str]) -> None:
    config = TrainCriticConfig(from_=["preferences-2", "preferences-1"], epochs=1, holdout=0.0)
    critic = run_train_critic(run, config, Silent())
    rows = [artifact.rows for artifact in both(run, "preferences")]
    assert critic.metrics.examples == sum(rows)  # type: ignore[arg-type]
    [made] = critic.artifacts
    assert [ref.id for ref in made.inputs] == ["preferences-1", "preferences-2", "rollouts-1", "rollouts-2"]
    assert made.meta["base"] == agents[0]
    nearest = input_of(run.manifest(), made, "rollouts")
    assert nearest is not None
    assert nearest.id == "rollouts-1"


@pytest.mark.parametrize(
    ("method", "kind", "count"), [("rft", "scores", 9), ("sft", "rollouts", 18), ("multi-turn-dpo", "preferences", 9)]
)
def test_every_method_learns_from_all(run: Run, method: str, kind: str, count: int) -> None:
    names = [f"{kind}-1", f"{kind}-2"]
    config = TrainActorConfig.model_validate({"algorithm": method, "from_": names, "epochs": 1})
    assert run_train_actor(run, config, Silent()).metrics.examples == count


def test_one_name_is_a_list_of_one() -> None:
    assert TrainActorConfig.model_validate({"from_": "pairs-1"}).from_ == ["pairs-1"]


def test_an_artifact_named_twice_is_refused(run: Run) -> None:
    with pytest.raises(UsageError, match="twice") as caught:
        run_train_critic(run, TrainCriticConfig(from_=["preferences-1", "preferences-1"]), Silent())
    assert "preferences-1" in str(caught.value.where)


def test_dialogues_of_different_agents_are_encoded_with_their_own_system_prompts(run: Run, agents: list[str]) -> None:
    """Of their rollouts, or of their own where one is recorded."""
    first, second = (one for one, _ in make_dialogues(1, 2))
    own = second.model_copy(update={"agent_system": "You are brief."})
    put(run, "rollout", "rollouts", [first, own], agent=agents[0], agent_system="You are polite.")
    sources = Sources(run, [run.artifact("rollouts-1"), run.artifact("rollouts-3")])
    dialogues = sources.dialogues()
    packaged = agent_system(run, run.artifact("rollouts-1"))
    expected = {
        f"rollouts-1/{first.id}": packaged,
        f"rollouts-1/{second.id}": packaged,
        f"rollouts-3/{first.id}": "You are polite.",
        f"rollouts-3/{second.id}": "You are brief.",
    }
    encoder = ChatEncoder(load_tokenizer(agents[0]))
    build = ExampleBuilder(DialogueEncoder(encoder, "paper", None), "rollouts-1")
    for example in build.dialogues(dialogues, list(expected), reveal=False):
        (row,) = (build.pool.sequences[index] for index in example.chosen)
        text = encoder.tokenizer.decode(row.ids)
        assert text.startswith(f"<|im_start|>system\n{expected[example.name]}<|im_end|>")
        assert text.count("<|im_start|>system") == 1


def test_a_training_mixes_dialogues_under_different_system_prompts(run: Run, agents: list[str]) -> None:
    dialogues = [one for one, _ in make_dialogues(1, 2)]
    put(run, "rollout", "rollouts", dialogues, agent=agents[0], max_turns=3)
    config = TrainActorConfig(algorithm="sft", from_=["rollouts-1", "rollouts-3"], epochs=1)
    assert run_train_actor(run, config, Silent()).metrics.examples == TASKS * SAMPLES + 2
