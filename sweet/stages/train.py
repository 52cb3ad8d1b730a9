"""`sweet train-critic` and `sweet train-actor`: their options, the data each learns from, and what is minimised.

The critic learns from trajectory preferences with the training-time information in sight, equation (2) of the paper;
one with a regression head may learn the outcomes of dialogues instead.
The actor learns from step-level pairs without it (`sweet`), or by one of the baselines: trajectory preferences
(`multi-turn-dpo`), likelihood of the dialogues that solved their task or are its best (`rft`). What comes before all of
these, a model that has yet to learn how a dialogue goes, learns from every dialogue (`sft`). How it is trained is the
same for all and lives in `sweet.stages.training`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from sweet.device import Device
from sweet.errors import SweetError, UsageError
from sweet.runs.manifest import Kind
from sweet.runs.run import Run
from sweet.stages.base import OPERATIONAL, Names, Packing, PlannedConfig, Reporter, StageResult
from sweet.stages.label import learnable, preferences, usable_dialogues
from sweet.stages.loggers import LogTarget
from sweet.stages.rows import Pair
from sweet.stages.sources import Sources
from sweet.tasks.base import Recipe
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import RewardRule
from sweet.tasks.trajectory import Trajectory

if TYPE_CHECKING:
    from sweet.stages.hyper import Learner
    from sweet.stages.training import Training


class TrainConfig(PlannedConfig):
    """What both trainings have in common."""

    model: str | None = None
    """The model to start from: micro, a directory or a hub id; the agent of the rollouts where not given."""
    engine: Literal["torch", "deepspeed", "openrlhf"] = Field(default="torch", json_schema_extra=OPERATIONAL)
    """What trains: plain torch on one device, DeepSpeed on several, or, the actor's pairs only, OpenRLHF's DPO."""
    lora: int | None = Field(default=None, ge=1)
    """Rank of a LoRA adapter to train in the place of the whole model; needs peft."""
    lora_alpha: int | None = Field(default=None, ge=1)
    """Weight of the adapter, over its rank; twice the rank where not given."""
    lora_target: list[str] = Field(default_factory=list)
    """A linear layer to adapt, by the end of its name (q_proj); may be given several times. Where not given, all but
    the output layer."""
    lora_output: Literal["merged", "adapter"] = "merged"
    """merged: a model like any other. adapter: peft's folder, small, of use beside its base; reading it needs peft."""
    lr: float | None = Field(default=None, gt=0)
    """Peak learning rate; the paper's 2e-7 for models of 100M parameters and more, larger ones for small models, and
    ten times that for LoRA."""
    beta: float = Field(default=0.1, ge=0)
    """Weight of the log-ratios in a preference loss; 0 (actor only) leaves the likelihood of the chosen side."""
    nll: float | None = Field(default=None, ge=0)
    """Weight of the likelihood of the chosen side; 0.01 as in the paper, more for a small model."""
    epochs: int | None = Field(default=None, ge=1)
    """Passes over the data; the paper's 4 (1 for the sweet actor and for sft), other numbers for small models."""
    batch: int | None = Field(default=None, ge=1)
    """Examples a step: 8, for rft and sft 32."""
    max_length: int | None = Field(default=None, ge=8)
    """Tokens of a sequence at most; longer dialogues lose early turns. The model's context where not given."""
    recipe: Recipe = "paper"
    """paper, or upstream to compute what the published code computes."""
    seed: int = Field(default=0, ge=0)
    """Seed of the order of the examples."""
    shuffle: Literal["examples", "kin"] = "examples"
    """examples: in any order. kin: a dialogue's pairs (a task's dialogues) together; faster, steps less varied."""
    limit: int | None = Field(default=None, ge=1)
    """Train on at most this many examples, drawn by the seed."""
    from_: Names = Field(default_factory=list)
    """An artifact to learn from; may be given several times, to learn from all of them and start from the agent of the
    last. Where not given, the newest finished one of the kind, scores of the test split only where there are no
    others."""
    device: Device = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Where to train."""
    devices: int | None = Field(default=None, ge=1, json_schema_extra=OPERATIONAL)
    """With deepspeed: GPUs to train on (of each host), or processes on a CPU; every GPU where not given."""
    hostfile: Path | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """With deepspeed: hosts to train on, one `HOST slots=GPUS` a line, or `slurm` for the nodes of the Slurm job that
    this runs in; the run lies on a disk that all see."""
    nnodes: int | None = Field(default=None, ge=2, json_schema_extra=OPERATIONAL)
    """With deepspeed: nodes that train together, where this command is started on each of them."""
    node_rank: int | None = Field(default=None, ge=0, json_schema_extra=OPERATIONAL)
    """Which of the nodes this one is; 0 keeps the manifest and the figures."""
    master_addr: str | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """Name or address by which the other nodes reach node 0, as that one is told; its host name where not given."""
    zero: int | None = Field(default=None, ge=0, le=3, json_schema_extra=OPERATIONAL)
    """With deepspeed: what each GPU keeps only a part of. 1: optimizer, 2: gradients too, 3: weights too (default)."""
    offload: Literal["none", "optimizer", "all"] = Field(default="none", json_schema_extra=OPERATIONAL)
    """With deepspeed: what is kept in the host's memory; all needs ZeRO 3."""
    micro_batch_tokens: int | None = Field(default=None, ge=1, json_schema_extra=OPERATIONAL)
    """Tokens of one forward pass; 2048 on a CPU, 16384 on a GPU. Does not change the size of a step."""
    gradient_checkpointing: Literal["auto", "on", "off"] = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Compute the inside of each layer again in the backward pass instead of keeping it: less memory, about a third
    more work. auto: on a GPU, for models of a billion parameters and more."""
    packing: Packing = Field(default="tree", json_schema_extra=OPERATIONAL)
    """tree: what the sequences of a step share is computed once. plain: each sequence by itself, to check against."""
    save_every: int | None = Field(default=None, ge=1, json_schema_extra=OPERATIONAL)
    """Steps between checkpoints; one after each epoch where not given."""
    log_to: tuple[LogTarget, ...] = Field(default=(), json_schema_extra=OPERATIONAL)
    """Where the figures of each step go besides the run; may be given several times."""
    resume: bool = Field(default=False, json_schema_extra=OPERATIONAL)
    """Go on from the last checkpoint of the same training."""


class TrainCriticConfig(TrainConfig):
    variant: Literal["advantage", "regression", "no-info"] = "advantage"
    """advantage: equation (3) with the training-time information. no-info: the same without it. regression: a linear
    head on the mean of the hidden states up to a turn, with the information."""
    target: Literal["preference", "binary", "real"] = "preference"
    """What a regression head learns. preference: its scores stand for the advantages in equation (2). binary: whether
    the dialogue solves its task. real: the dialogue's reward. The latter two learn from scores (--from SCORES)."""
    normalize: Literal["turn", "trajectory", "none"] | None = None
    """How log-ratios are averaged: by turn (the paper), over the trajectory (recipe upstream), or not at all."""
    holdout: float = Field(default=0.1, ge=0, lt=1)
    """Share of the tasks whose preferences are kept apart to measure the critic on."""
    image_pixels: int = Field(default=512 * 28 * 28, ge=56 * 56)
    """Pixels of a screenshot at most, for a regression head on a vision-language model: larger ones are scaled down. A
    token is 784 of them (Qwen2-VL, Qwen2.5-VL) or 1024 (Qwen3-VL)."""
    keep: Literal["best", "last"] | None = None
    """What to keep: the weights of the epoch that ordered most of the held-out preferences rightly (best; of equals the
    later), or the last ones. best where anything is held out."""


class TrainActorConfig(TrainConfig):
    method: Literal["sweet", "multi-turn-dpo", "rft", "sft"] = "sweet"
    """sweet: step-level pairs. multi-turn-dpo: trajectory preferences. rft: the dialogues that solved their task, for
    pages each task's best. sft: every dialogue of the rollouts, good or bad; a warm-up, with --model."""


LEARNS_FROM: dict[str, Kind] = {
    "sweet": "pairs",
    "multi-turn-dpo": "preferences",
    "rft": "scores",
    "sft": "rollouts",
}


def run_train_critic(run: Run, config: TrainCriticConfig, reporter: Reporter) -> StageResult:
    """Train the critic on the run's preferences, into a folder in Hugging Face layout."""
    if config.node_rank:
        from sweet.stages.nodes import take_part

        return take_part(run, config, "train-critic", "critic", reporter)
    training, meta = _critic(run, config, reporter)
    return training.run_stage("train-critic", "critic", meta)


def plan_train_critic(run: Run, config: TrainCriticConfig, reporter: Reporter) -> dict[str, Any]:
    """What `run_train_critic` would do (`sweet.stages.estimate`)."""
    from sweet.stages.estimate.training import plan

    return plan(*_critic(run, config, reporter, weights=False))


def _critic(
    run: Run, config: TrainCriticConfig, reporter: Reporter, *, weights: bool = True
) -> tuple[Training, dict[str, Any]]:
    """The critic's training, ready to run, and what its artifact says of itself."""
    if config.engine == "openrlhf":
        raise _beyond_openrlhf("the critic")
    _check_critic(config)
    meta: dict[str, Any] = {"variant": config.variant, "recipe": config.recipe}
    if config.variant == "regression":
        meta["target"] = config.target
    else:
        meta["normalize"] = config.normalize or ("trajectory" if config.recipe == "upstream" else "turn")
    prepare = _preference_critic if config.target == "preference" else _outcome_critic
    training = prepare(run, config, reporter, meta, weights)
    if config.keep == "best" and not training.heldout:
        raise UsageError("Nothing is held out to tell the best by.", where="--keep best", fix="a larger --holdout")
    training.keep_best = config.keep != "last" and bool(training.heldout)
    return training, meta


def _preference_critic(
    run: Run, config: TrainCriticConfig, reporter: Reporter, meta: dict[str, Any], weights: bool
) -> Training:
    """The training of a critic on preferences: by equation (3), or with a regression head."""
    from sweet.learn.data import Objective
    from sweet.stages.examples import dialogue_examples, hold_out
    from sweet.stages.training import Training

    regression = config.variant == "regression"
    sources = Sources.find(run, "preferences", config.from_, needed_by="train-critic")
    learner: Learner = "regression" if regression else "critic"
    training = Training(run, config, learner, sources.inputs, reporter, weights=weights)
    kept, apart = hold_out(sources.preferences(), config.holdout, config.seed)
    with_info = config.variant != "no-info"
    dialogues = sources.dialogues()
    training.examples = dialogue_examples(training, dialogues, training.draw(kept), reveal=with_info)
    training.heldout = dialogue_examples(training, dialogues, apart, reveal=with_info)
    nll = training.hyper.nll
    if regression:
        training.objective = Objective(config.beta, nll, target="preference")
    else:
        training.objective = Objective(config.beta, nll, meta["normalize"])
    return training


def _check_critic(config: TrainCriticConfig) -> None:
    """Raise UsageError where options do not go together."""
    if config.beta == 0 and config.target == "preference":
        raise UsageError("Without log-ratios a critic has no preferences to learn.", where="--beta 0", fix="--beta 0.1")
    if config.variant != "regression":
        if config.target != "preference":
            what = "Only a regression head has a target: the other variants learn from preferences."
            raise UsageError(what, where=f"--target {config.target}", fix="--variant regression")
        if config.image_pixels != TrainCriticConfig.model_fields["image_pixels"].default:
            what = "Only a regression head is shown screenshots: the other variants read the reference's HTML."
            raise UsageError(what, where=f"--image-pixels {config.image_pixels}", fix="--variant regression")
        return
    if config.normalize is not None:
        what = "A regression head has no log-ratios to average."
        raise UsageError(what, where=f"--normalize {config.normalize}", fix="leave it out")
    if config.target != "preference" and config.nll:
        what = "The likelihood term is of the chosen side, and the target learns from dialogues that failed too."
        raise UsageError(what, where=f"--nll {config.nll:g}", fix="--target preference, or leave it out")


def _outcome_critic(
    run: Run, config: TrainCriticConfig, reporter: Reporter, meta: dict[str, Any], weights: bool
) -> Training:
    """The training of a regression head on every scored dialogue. The tasks kept apart are those that a training on the
    preferences of the same scores keeps apart, and its preferences there are what it is measured on."""
    from sweet.learn.data import Objective
    from sweet.stages.examples import dialogue_examples, hold_out
    from sweet.stages.training import Training

    rule = task_kind(run.manifest().task).rewards
    if config.target == "binary" and rule.solved is None:
        what = f"No task of the kind {run.manifest().task} is ever solved: its rewards are degrees."
        raise UsageError(what, where="--target binary", fix="--target real, or preference")
    sources = _scores_to_learn(run, config.from_)
    training = Training(run, config, "regression", sources.inputs, reporter, weights=weights)
    dialogues, rewards = sources.dialogues(), sources.rewards()
    usable = usable_dialogues(dialogues.values(), rewards)
    _, apart = hold_out(list(preferences(usable, rewards, rule)), config.holdout, config.seed)
    unseen = {preference.task_id for preference in apart}
    kept = sorted(trajectory.id for trajectory in usable if trajectory.task_id not in unseen)
    goals = {name: rule.worth(reward) for name, reward in rewards.items()} if config.target == "binary" else rewards
    training.examples = dialogue_examples(training, dialogues, training.draw(kept), reveal=True, goals=goals)
    training.heldout = dialogue_examples(training, dialogues, apart, reveal=True, goals=goals)
    training.objective = Objective(None, 0.0, target=meta["target"])
    return training


def _scores_to_learn(run: Run, named: Sequence[str]) -> Sources:
    """The scores behind the newest preferences, as all targets learn from the same dialogues; where there are no
    preferences, the newest scores."""
    labelled = run.manifest().of_kind("preferences", "done")
    if not named and labelled:
        return Sources(run, [run.input_of(labelled[-1], "scores")])
    return Sources.find(run, "scores", named, needed_by="train-critic")


def run_train_actor(run: Run, config: TrainActorConfig, reporter: Reporter) -> StageResult:
    """Train the actor by the method asked for, into a folder that `rollout --agent` takes."""
    from sweet.stages.openrlhf import train_by_openrlhf

    if config.node_rank:
        from sweet.stages.nodes import take_part

        return take_part(run, config, "train-actor", "actor", reporter)
    training, pairs = _actor(run, config, reporter)
    if config.engine == "openrlhf":
        return train_by_openrlhf(training, pairs)
    return training.run_stage("train-actor", "actor", {"method": config.method, "recipe": config.recipe})


def plan_train_actor(run: Run, config: TrainActorConfig, reporter: Reporter) -> dict[str, Any]:
    """What `run_train_actor` would do (`sweet.stages.estimate`)."""
    from sweet.stages.estimate.training import plan

    return plan(_actor(run, config, reporter, weights=False)[0], {"method": config.method})


def _actor(
    run: Run, config: TrainActorConfig, reporter: Reporter, *, weights: bool = True
) -> tuple[Training, list[Pair]]:
    """The actor's training, ready to run, and its pairs where the method learns from pairs."""
    from sweet.learn.data import Objective
    from sweet.stages.examples import dialogue_examples, pair_examples
    from sweet.stages.training import Training

    needed_by = f"train-actor --method {config.method}"
    sources = Sources.find(run, LEARNS_FROM[config.method], config.from_, needed_by=needed_by)
    if config.engine == "openrlhf" and config.method != "sweet":
        raise _beyond_openrlhf(config.method)
    training = Training(run, config, config.method, sources.inputs, reporter, weights=weights)
    hyper = training.hyper
    pairs: list[Pair] = []
    if config.method == "sweet":
        pairs = training.draw(sources.pairs())
        if weights and config.engine == "openrlhf":  # which encodes them itself
            return training, pairs
        training.examples = pair_examples(training, pairs)
        # The published actor's likelihood term has no response mask.
        training.objective = Objective(config.beta or None, hyper.nll, "none", whole_nll=config.recipe == "upstream")
    elif config.method == "multi-turn-dpo":
        rows = training.draw(sources.preferences())
        training.examples = dialogue_examples(training, sources.dialogues(), rows, reveal=False)
        training.objective = Objective(config.beta or None, hyper.nll, "none")
    else:
        dialogues = sources.dialogues()
        if config.method == "sft":
            kept = sorted(dialogue.id for dialogue in dialogues.values() if learnable(dialogue))
        else:
            kept = _worth_imitating(dialogues, sources, task_kind(run.manifest().task).rewards)
        training.examples = dialogue_examples(training, dialogues, training.draw(kept), reveal=False)
        training.objective = Objective(None, hyper.nll)
    return training, pairs


def _beyond_openrlhf(what: str) -> UsageError:
    return UsageError(
        f"OpenRLHF's DPO takes one prompt for both sides of a pair, and the data of {what} have none.",
        where="--engine openrlhf",
        fix="--engine torch, or deepspeed for several devices",
    )


def _worth_imitating(dialogues: Mapping[str, Trajectory], sources: Sources, rule: RewardRule) -> list[str]:
    """Ids of the dialogues that rejection fine-tuning keeps, in order (see sweet.tasks.scores.RewardRule)."""
    rewards = sources.rewards()
    usable = usable_dialogues(dialogues.values(), rewards)
    ids = kept(sorted((dialogue.id, dialogue.task_id) for dialogue in usable), rewards, rule)
    if not ids:
        raise SweetError(
            "No dialogue solved its task, so there is nothing to fine-tune on."
            if rule.solved is not None
            else "No dialogue is better than another one of its task, so there is nothing to fine-tune on.",
            where=sources.inputs[0].id,
            fix="sweet rollout with more --samples, then sweet eval",
        )
    return ids


def kept(dialogues: Sequence[tuple[str, str]], rewards: Mapping[str, float], rule: RewardRule) -> list[str]:
    """Which of some dialogues (id, task id) rejection fine-tuning keeps, in their order."""
    if rule.solved is not None:
        return [name for name, _ in dialogues if rewards[name] >= rule.solved]
    tasks: dict[str, list[str]] = {}
    for name, task in dialogues:
        tasks.setdefault(task, []).append(name)
    ranges = [(max(names, key=lambda n: rewards[n]), min(rewards[n] for n in names)) for names in tasks.values()]
    best = {name for name, least in ranges if rewards[name] > least}
    return [name for name, _ in dialogues if name in best]
