"""Critic and actor are trained from a run's artifacts, resume, and load again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.credit.names import RULES
from sweet.errors import InputError, SweetError, UsageError
from sweet.learn import blocks
from sweet.learn.rows import Candidate, Pair
from sweet.learn.trainee import Start, Trainee, save_model
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.runs.attempt import ActiveAttempt
from sweet.runs.run import Run
from sweet.stages.base import Packing, Silent
from sweet.tasks.registry import task_kind
from sweet.training.config import TrainActorConfig, TrainConfig, TrainCriticConfig
from sweet.training.examples import hold_out
from sweet.training.hyperparameters import CRITICS, LARGE, defaults, resolve, usual_rate
from sweet.training.model import tokens_on_cpu
from sweet.training.movement import typical_weight, warn_if_unmoved
from sweet.training.stage import plan_train_actor, run_train_actor, run_train_critic
from tests.learn.builders import TEMPLATES, assert_trained_alike, build_model, build_tokenizer
from tests.stages.counting import StoppedError, Stopping
from tests.stages.learn_runs import make_agent, make_run, put


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_agent(tmp_path_factory.mktemp("models") / "agent")


@pytest.fixture
def run(tmp_path: Path, agent: str) -> Run:
    run = make_run(tmp_path, agent)
    run_label(run, LabelConfig(), Silent())
    return run


def weights(folder: Path) -> torch.Tensor:
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    return torch.cat([tensors[name].flatten() for name in sorted(tensors)])


def put_pairs(run: Run, alone: Sequence[int] = ()) -> None:
    """Put six pairs.

    Args:
        alone: the numbers of those without a rejected reply.
    """
    rollouts = run.artifact("rollouts-1")
    rows = [
        Pair(
            id=f"p{number}",
            task_id="task-0",
            trajectory_id="5-0-0",
            turn=1,
            observation=({"role": "user", "content": f"Write fee {number}"},),
            chosen=Candidate(text="What is the rate?", advantage=0.4),
            rejected=None if number in alone else Candidate(text="Is it 7?", advantage=-0.2),
        )
        for number in range(6)
    ]
    put(run, "pair", "pairs", rows, [rollouts])


def stopped(run: Run, config: TrainCriticConfig, steps: int) -> None:
    """Interrupt a training after so many steps."""
    with pytest.raises(StoppedError):
        run_train_critic(run, config, Stopping(steps))


def test_a_critic_learns_and_is_recorded(run: Run, agent: str) -> None:
    config = TrainCriticConfig(holdout=0.2, epochs=8, lr=5e-3, batch=4)
    result = run_train_critic(run, config, Silent())
    metrics, artifact = result.metrics, result.artifacts[0]
    assert metrics.accuracy == 1.0
    assert metrics.heldout_accuracy == 1.0
    assert (metrics.examples, metrics.heldout, metrics.steps) == (8, 2, 16)
    assert (metrics.lr, metrics.nll, metrics.mfu) == (5e-3, defaults("critic", large=False).nll, None)
    assert artifact.meta["base"] == agent
    assert (artifact.meta["variant"], artifact.meta["protocol"]) == ("advantage", "paper")
    folder = run.file(artifact)
    assert not (folder / "checkpoint.pt").exists()
    log = [json.loads(line) for line in (run.path / "logs" / "train-critic-1.jsonl").read_text().splitlines()]
    steps = [row for row in log if "loss" in row]
    assert [row["step"] for row in steps] == list(range(1, 17))
    assert {"loss", "accuracy", "margin", "lr", "grad_norm", "tokens_per_second"} <= set(steps[0])
    assert not torch.equal(weights(folder), weights(Path(agent)))


def test_only_an_informed_critic_reads_the_training_time_information(run: Run) -> None:
    tokens = {
        variant: run_train_critic(
            run, TrainCriticConfig(variant=variant, epochs=1, holdout=0.0), Silent()
        ).metrics.as_json()["tokens"]
        for variant in ("advantage", "no-info")
    }
    assert tokens["advantage"] > tokens["no-info"]


def test_protocol_upstream_changes_the_training(run: Run) -> None:
    result = run_train_critic(run, TrainCriticConfig(protocol="upstream", epochs=1), Silent())
    assert result.artifacts[0].meta["normalize"] == "trajectory"
    assert result.metrics.nll == 0.0


def test_interrupted_and_resumed_equals_uninterrupted(run: Run) -> None:
    config = TrainCriticConfig(epochs=3, batch=2, lr=1e-3, save_every=2)
    whole = run_train_critic(run, config, Silent())
    stopped(run, config, 7)
    partial = run.manifest().artifacts[-1]
    assert (partial.id, partial.status) == ("critic-2", "partial")
    again = run_train_critic(run, config.model_copy(update={"resume": True}), Silent())
    assert again.artifacts[0].id == "critic-2"
    first, second = (run.file(result.artifacts[0]) for result in (whole, again))
    assert torch.equal(weights(first), weights(second))
    assert again.metrics.heldout_accuracy == whole.metrics.heldout_accuracy
    assert again.metrics.loss == whole.metrics.loss
    finished = run_train_critic(run, config.model_copy(update={"resume": True}), Silent())
    assert finished.artifacts[0].id == "critic-2"
    assert finished.metrics == again.metrics
    assert finished.artifacts[0].sha256 == again.artifacts[0].sha256
    cut = run.file(finished.artifacts[0]) / "tokenizer.json"
    os.truncate(cut, cut.stat().st_size // 2)
    with pytest.raises(InputError, match="critic-2 is not as it was finished"):  # instead of recording what is left
        run_train_critic(run, config.model_copy(update={"resume": True}), Silent())
    assert run.artifact("critic-2").status == "partial"


def test_a_model_that_was_trained_and_not_recorded_is_not_trained_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill while its sums are computed, which takes minutes of a large model."""
    config = TrainCriticConfig(epochs=1, batch=2, resume=True)

    def killed(*_: object, **__: object) -> None:
        raise StoppedError

    with monkeypatch.context() as until:
        until.setattr(ActiveAttempt, "finish_artifact", killed)
        with pytest.raises(StoppedError):
            run_train_critic(run, config, Silent())
    before = run.manifest()
    assert (before.artifacts[-1].id, before.artifacts[-1].status) == ("critic-1", "partial")
    folder = run.path / "critic" / "critic-1"
    assert not (folder / "checkpoint.pt").exists()
    monkeypatch.setattr("sweet.training.stage.train_by_engine", killed)
    result = run_train_critic(run, config, Silent())
    assert result.metrics.as_json() == before.attempts[-1].metrics
    assert result.artifacts[0].id == "critic-1"
    Trainee.load(Start(str(folder)), "cpu")


@pytest.mark.parametrize("method", ["sweet", "multi-turn-dpo", "rft", "sft"])
@pytest.mark.parametrize("protocol", ["paper", "upstream"])
def test_every_method_trains_an_actor(run: Run, agent: str, method: Any, protocol: Any) -> None:
    from sweet.llm.pretrained import load_model, load_tokenizer

    put_pairs(run)
    epochs = 6 if method in ("sweet", "multi-turn-dpo") else 1
    config = TrainActorConfig(algorithm=method, protocol=protocol, epochs=epochs, lr=3e-3)
    result = run_train_actor(run, config, Silent())
    folder = run.file(result.artifacts[0])
    assert result.artifacts[0].meta["algorithm"] == method
    assert result.artifacts[0].meta["base"] == agent
    assert (result.metrics.accuracy is None) == (method in ("rft", "sft"))
    if result.metrics.accuracy is not None:
        assert result.metrics.accuracy == 1.0
    tokenizer = load_tokenizer(str(folder))
    assert load_model(str(folder), "cpu", tokenizer=tokenizer).num_parameters() == result.metrics.parameters


def test_without_pairs_the_error_names_the_stage_that_makes_them(run: Run) -> None:
    with pytest.raises(UsageError, match="pairs") as caught:
        run_train_actor(run, TrainActorConfig(), Silent())
    assert "sweet pair" in str(caught.value.fix)


def test_rft_without_a_solved_task_is_an_error(tmp_path: Path, agent: str) -> None:
    from tests.stages.learn_runs import make_dialogues, score

    run = Run.create(tmp_path / "run", task="code")
    dialogues = [trajectory for trajectory, _ in make_dialogues(2, 2)]
    rollouts = put(run, "rollout", "rollouts", dialogues, agent=agent)
    put(run, "eval", "scores", [score(trajectory, 0.2) for trajectory in dialogues], [rollouts])
    with pytest.raises(SweetError, match="solved"):
        run_train_actor(run, TrainActorConfig(algorithm="rft"), Silent())


def test_sft_learns_every_dialogue_and_needs_no_scores(tmp_path: Path, agent: str) -> None:
    from tests.stages.learn_runs import make_dialogues

    run = Run.create(tmp_path / "run", task="code")
    dialogues = [trajectory for trajectory, _ in make_dialogues(2, 2)]
    broken = dialogues[0].model_copy(update={"id": "broken", "outcome": "agent_error"})
    put(run, "data-import", "rollouts", [*dialogues, broken], agent="imported")
    put(run, "rollout", "rollouts", dialogues[:1], agent=agent, split="test")
    config = TrainActorConfig(algorithm="sft", model=agent, epochs=1)
    result = run_train_actor(run, config, Silent())
    assert result.metrics.examples == len(dialogues)
    assert [source.id for source in result.artifacts[0].inputs] == ["rollouts-1"]
    named = run_train_actor(run, config.model_copy(update={"from_": ["rollouts-2"], "allow_test": True}), Silent())
    assert named.metrics.examples == 1


def test_dropped_turns_are_counted_and_a_dialogue_that_cannot_fit_is_named(run: Run) -> None:
    result = run_train_critic(run, TrainCriticConfig(max_length=575, epochs=1), Silent())
    assert result.metrics.as_json()["dropped_turns"] > 0
    with pytest.raises(UsageError, match="Dialogue 5-") as caught:
        run_train_critic(run, TrainCriticConfig(max_length=60, epochs=1), Silent())
    assert "--max-length" in str(caught.value.fix)


def test_a_limit_draws_examples(run: Run) -> None:
    assert run_train_critic(run, TrainCriticConfig(limit=3, epochs=1), Silent()).metrics.examples == 3


def test_an_unknown_model_is_a_usage_error(run: Run) -> None:
    with pytest.raises(UsageError):
        run_train_critic(run, TrainCriticConfig(model="no/such-model"), Silent())


def test_all_preferences_of_a_held_out_task_are_held_out() -> None:
    from sweet.learn.rows import Preference

    rows = [
        Preference(task_id=f"t{i % 10}", chosen="a", rejected=f"r{i}", chosen_reward=1, rejected_reward=0)
        for i in range(40)
    ]
    kept, apart = hold_out(rows, 0.2, seed=1)
    assert len({row.task_id for row in apart}) == 2
    assert not {row.task_id for row in apart} & {row.task_id for row in kept}
    assert len(kept) + len(apart) == 40
    assert hold_out(rows, 0.2, seed=1) == (kept, apart)
    assert hold_out(rows, 0.0, seed=1) == (rows, [])


def test_hyperparameters_depend_on_the_size_of_the_model() -> None:
    for name in (*CRITICS, *RULES):
        for size, large in ((8 * 10**9, True), (10**6, False)):
            assert resolve(TrainConfig(), name, size, "paper").lr == defaults(name, large=large).lr, name
    assert resolve(TrainConfig(), "critic", 10**6, "paper") == defaults("critic", large=False)
    assert resolve(TrainConfig(), "sweet", 10**6, "paper").nll > resolve(TrainConfig(), "sweet", LARGE, "paper").nll
    assert resolve(TrainConfig(), "critic", LARGE, "upstream").nll == 0.0
    assert resolve(TrainConfig.model_validate({"lr": 1.0, "batch": 2}), "rft", LARGE, "paper").batch == 2


@pytest.mark.parametrize(
    ("learner", "parameters", "whole", "adapter"),
    [
        ("sft", 135_000_000, 5e-5, 5e-4),
        ("multi-turn-dpo", 135_000_000, 2e-5, 2e-4),
        ("critic", 135_000_000, 2e-5, 2e-4),
        ("sweet", 1_700_000_000, 1e-6, 1e-5),
        ("sweet", 8_000_000_000, 2e-7, 2e-6),
        ("grpo", 135_000_000, 1.7e-5, 1.7e-4),
        ("grpo", 8_000_000_000, 1e-6, 1e-5),
    ],
)
def test_the_default_rate_is_of_the_size_and_the_method(
    learner: str, parameters: int, whole: float, adapter: float
) -> None:
    rates = [usual_rate(learner, parameters, lora=lora) for lora in (False, True)]
    assert rates == [pytest.approx(whole, rel=0.03), pytest.approx(adapter, rel=0.03)]


def test_the_documented_table_of_rates_is_that_of_the_program() -> None:
    text = (Path(__file__).parents[2] / "docs/training.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| `[\w-]+`.*\| \d\S*e-", line)]
    shown = {name.strip("`"): [float(rate) for rate in rates] for names, *rates in rows for name in names.split(", ")}
    assert shown.keys() == {*CRITICS, *RULES}
    for name, rates in shown.items():
        assert rates == [usual_rate(name, size, lora=False) for size in (10**6, 135 * 10**6, 8 * 10**9)], name


def test_rates_fall_with_the_size_from_one_measured_rate_to_the_next() -> None:
    sizes = [10**6, 10**7, 135 * 10**6, 10**9, 8 * 10**9]
    for learner in (*CRITICS, *RULES):
        rates = [usual_rate(learner, size, lora=False) for size in sizes]
        assert rates == sorted(rates, reverse=True)
        assert len({*rates}) == len(rates), learner


class Warned(Silent):
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.mark.parametrize(
    ("options", "moved"),
    [
        ({"lr": 2e-9}, "a rate of at most 2e-09 in 8 steps moves a weight by at most"),
        ({"lr": 2e-8, "lora": 2}, "a rate of at most 2e-08 in 8 steps moves a weight by at most"),
        ({"lr": 2e-3}, ""),
        ({"lr": 2e-3, "lora": 2}, ""),
        ({}, ""),
    ],
)
def test_a_rate_that_cannot_change_the_model_is_warned_of(run: Run, options: dict[str, Any], moved: str) -> None:
    """Before the training, and by `--dry-run`, with the number."""
    if "lora" in options:
        pytest.importorskip("peft")
    config = TrainActorConfig.model_validate({"algorithm": "rft", "epochs": 4, "batch": 4, "limit": 8, **options})
    planned, trained = Warned(), Warned()
    plan_train_actor(run, config, planned)
    run_train_actor(run, config, trained)
    for found in (planned.warnings, trained.warnings):
        assert bool(moved) == any("cannot change the model" in text for text in found)
        assert bool(moved) == any(bool(moved) and moved in text for text in found)


def test_what_a_16_bit_model_does_not_store_is_warned_of(tmp_path: Path) -> None:
    """0.15 % of a weight is noticed in fp32 and not stored in bf16."""
    tokenizer, found = build_tokenizer(TEMPLATES["chatml"]), []
    for kind in (torch.float32, torch.bfloat16):
        save_model(build_model(len(tokenizer)).to(kind), tokenizer, tmp_path / str(kind))
        weight = typical_weight(tmp_path / str(kind))
        assert weight is not None
        trainee = Trainee.on_meta(Start(str(tmp_path / str(kind))))
        for share in (9e-4, 1.5e-3, 3e-3):
            warned: list[str] = []
            warn_if_unmoved(trainee, "sft", [share * weight], warned.append)
            found.append(len(warned))
    assert found == [1, 0, 0, 1, 1, 0]


def test_a_large_model_passes_over_whole_dialogues_as_often_as_the_kind_of_task_says() -> None:
    learners = ("critic", "regression", "multi-turn-dpo", "rft", "sweet", "sft")

    def epochs(kind: str, parameters: int = LARGE, **given: Any) -> dict[str, int]:
        passes = task_kind(kind).dialogue_epochs
        found = (resolve(TrainConfig(**given), name, parameters, "paper", passes) for name in learners)
        return {name: used.epochs for name, used in zip(learners, found, strict=True)}

    assert epochs("code") == {"critic": 4, "regression": 4, "multi-turn-dpo": 4, "rft": 4, "sweet": 1, "sft": 1}
    assert epochs("html") == {"critic": 8, "regression": 8, "multi-turn-dpo": 8, "rft": 8, "sweet": 1, "sft": 1}
    assert (
        epochs("html", 10**6)
        == epochs("code", 10**6)
        == {name: defaults(name, large=False).epochs for name in learners}
    )
    assert set(epochs("html", epochs=3).values()) == {3}


def test_each_packing_trains_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 40)  # the trees have several blocks
    packings: tuple[Packing, ...] = ("tree", "plain")
    by_packing = {}
    for packing in packings:
        config = TrainCriticConfig(packing=packing, epochs=2, batch=4, lr=1e-3)
        result = run_train_critic(run, config, Silent())
        log = run.path / "logs" / f"{run.manifest().attempts[-1].id}.jsonl"
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        by_packing[packing] = [row["loss"] for row in rows if "loss" in row], weights(run.file(result.artifacts[0]))
    assert by_packing["tree"][0] == pytest.approx(by_packing["plain"][0], abs=1e-4)
    assert_trained_alike(by_packing["tree"][1], by_packing["plain"][1])


def test_the_likelihood_of_a_reply_is_a_mean_or_a_sum_over_its_tokens(run: Run, agent: str) -> None:
    from transformers import AutoTokenizer

    put_pairs(run)

    def first_loss(*rule_option: str) -> float:
        """Return the loss of the first step, which is taken on one pair."""
        config = TrainActorConfig(beta=0.0, nll=1.0, epochs=1, limit=1, device="cpu", rule_option=list(rule_option))
        loss = run_train_actor(run, config, Silent()).metrics.loss
        assert loss is not None
        return loss

    tokens = len(AutoTokenizer.from_pretrained(agent)("What is the rate?").input_ids) + 1  # and the end of the turn
    assert first_loss("likelihood=sum") == pytest.approx(tokens * first_loss(), rel=1e-4)
    assert first_loss("likelihood=mean") == first_loss()
    with pytest.raises(UsageError, match="'mean' or 'sum'"):
        first_loss("likelihood=most")


def test_replies_without_a_rejected_one_are_learned_by_their_likelihood(run: Run) -> None:
    config = TrainActorConfig(nll=1.0, epochs=6, batch=2, lr=3e-3, device="cpu")
    put_pairs(run, alone=(1, 2, 4, 5))
    work = plan_train_actor(run, config, Silent()).work
    assert (work.examples, work.steps) == (6, 18)
    metrics = run_train_actor(run, config, Silent()).metrics
    assert (metrics.examples, metrics.steps, metrics.accuracy) == (6, 18, 1.0)


def test_beta_0_trains_an_actor_on_the_chosen_side_and_is_refused_for_a_critic(run: Run) -> None:
    put_pairs(run)
    metrics = run_train_actor(run, TrainActorConfig(beta=0.0, nll=1.0, epochs=2, device="cpu"), Silent()).metrics
    assert (metrics.accuracy, metrics.margin) == (None, None)
    assert metrics.loss is not None
    assert metrics.loss > 0
    with pytest.raises(UsageError, match="no preferences to learn"):
        run_train_critic(run, TrainCriticConfig(beta=0.0, device="cpu"), Silent())


@pytest.mark.parametrize(
    ("hidden", "layers", "inner", "tokens"),
    [(128, 4, 512, 2048), (576, 30, 1536, 746), (4096, 32, 14336, 256)],
)
def test_the_tokens_of_a_forward_pass_on_a_cpu_depend_on_the_size_of_the_model(
    hidden: int, layers: int, inner: int, tokens: int
) -> None:
    """A gibibyte of what is saved for the backward pass: the packaged agent, SmolLM2-135M and a model of 8B."""
    from transformers import LlamaConfig

    heads = hidden // 64
    config = LlamaConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 3),
    )
    assert tokens_on_cpu(config) == tokens
    assert tokens_on_cpu(config, recomputed=True) == 2048 if hidden < 4096 else 1024
