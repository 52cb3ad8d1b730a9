"""The options of `sweet train-critic` and `sweet train-actor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from sweet.device import Device
from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.runs.manifest import Kind
from sweet.stages.base import MAIN, OPERATIONAL, Names, PlannedConfig, StageConfig, TrainPacking, about
from sweet.tasks.base import CRITIC_TURN_TOKENS, Recipe, TurnTokens
from sweet.training.loggers import LogTarget

Engine = Literal["torch", "deepspeed", "openrlhf"]
Offload = Literal["none", "optimizer", "all"]
LoraOutput = Literal["merged", "adapter"]
Order = Literal["examples", "pieces", "grouped"]
"""How the examples of an epoch are shuffled (`sweet.learn.batches.epoch_order`)."""
Shuffle = Literal["auto", "examples", "pieces", "grouped"]
"""An order, or the one that suits what is learned (`order_of`)."""
ZERO = 3
"""The default ZeRO stage, which needs the least memory: several devices are mostly used because one is too small."""


@dataclass(frozen=True)
class LayoutOptions:
    """The options that say on which devices and machines a training runs; see the fields of `TrainConfig`."""

    engine: Engine
    device: Device
    devices: int | None = None
    hostfile: Path | None = None
    zero: int | None = None
    offload: Offload = "none"

    @property
    def zero_stage(self) -> int:
        """The ZeRO stage, given or by default."""
        return ZERO if self.zero is None else self.zero


@dataclass(frozen=True)
class LoraOptions:
    """The options of an adapter; see the fields of `TrainConfig`.

    Attributes:
        rank: None where the whole model is trained.
        seed: of the adapter's initial weights.
    """

    rank: int | None
    alpha: int | None = None
    target: Sequence[str] = ()
    output: LoraOutput = "merged"
    seed: int = 0


class PushedConfig(StageConfig):
    """The option of a training whose model can be pushed when it has ended."""

    push: str | None = Field(default=None, json_schema_extra=about("Checkpoints and logs", OPERATIONAL))
    """Push the trained model with its card to this repository of the model hub, ORG/NAME, when the training has ended;
    a new one is private. Name and token are checked before it begins."""


class TrainConfig(PlannedConfig, PushedConfig):
    """The options that both trainings have."""

    model: str | None = Field(default=None, json_schema_extra=about("Method", MAIN))
    """The model to start from: micro, a directory or a hub id; default: the agent of the rollouts."""
    engine: Engine = Field(default="torch", json_schema_extra=about("Several GPUs and machines", MAIN, OPERATIONAL))
    """torch on one device, DeepSpeed on several, or, only for the actor's pairs, OpenRLHF's DPO."""
    lora: int | None = Field(default=None, ge=1, json_schema_extra=about("Adapter (LoRA)", MAIN))
    """Rank of a LoRA adapter to train instead of the whole model; needs peft."""
    lora_alpha: int | None = Field(default=None, ge=1, json_schema_extra=about("Adapter (LoRA)"))
    """Weight of the adapter, which is divided by its rank; default: twice the rank."""
    lora_target: list[str] = Field(default_factory=list, json_schema_extra=about("Adapter (LoRA)"))
    """A linear layer to adapt, by the end of its name (q_proj); may be given several times. Default: all but the output
    layer."""
    lora_output: LoraOutput = Field(default="merged", json_schema_extra=about("Adapter (LoRA)"))
    """merged: an ordinary model. adapter: peft's small folder, which needs its base model and peft to be loaded."""
    lr: float | None = Field(default=None, gt=0, json_schema_extra=about("Optimization", MAIN))
    """Peak learning rate; the paper's 2e-7 for models of 100M parameters and more, larger ones for small models, and
    ten times that for LoRA."""
    beta: float = Field(default=0.1, ge=0, json_schema_extra=about("Optimization"))
    """Weight of the log-ratios in a preference loss; 0 (actor only) leaves only the likelihood of the chosen side."""
    nll: float | None = Field(default=None, ge=0, json_schema_extra=about("Optimization"))
    """Weight of the likelihood of the chosen side; 0.01 as in the paper, more for a small model."""
    epochs: int | None = Field(default=None, ge=1, json_schema_extra=about("Optimization", MAIN))
    """Passes over the data; the paper's 4 (1 for the sweet actor and for sft), other numbers for small models."""
    batch: int | None = Field(default=None, ge=1, json_schema_extra=about("Optimization", MAIN))
    """Examples per step; default: 8, for rft and sft 32."""
    max_length: int | None = Field(default=None, ge=8, json_schema_extra=about("Method"))
    """Tokens of a sequence at most; longer dialogues lose early turns. Default: the model's context."""
    turn_tokens: TurnTokens | None = Field(default=None, json_schema_extra=about("Method"))
    """The tokens of a thinking agent's turns that are supervised: both, thought and reply together; reply, the thought
    is only read; or separate, each is half of the turn. Default: both for an actor, separate for a critic."""
    recipe: Recipe = Field(default="paper", json_schema_extra=about("Method"))
    """paper, or upstream to compute the same as the published code."""
    seed: int = Field(default=0, ge=0, json_schema_extra=about("Optimization"))
    """Seed of the order of the examples."""
    shuffle: Shuffle = Field(
        default="auto",
        json_schema_extra=about("Optimization"),
    )
    """examples: in random order. pieces: at most half a batch of a dialogue's pairs (of a task's preferences) together;
    grouped: all of them. The more are together the faster, and the less a step's examples vary. auto: pieces for
    step-level pairs and a critic's preferences; examples for whole dialogues, recipe upstream and screenshots."""
    limit: int | None = Field(default=None, ge=1, json_schema_extra=about("Data"))
    """Train on at most this many examples, drawn by the seed."""
    from_: Names = Field(default_factory=list, json_schema_extra=about("Data", MAIN))
    """An artifact to learn from; may be given several times, to learn from all of them and start from the agent of the
    last. Default: the newest finished one of its kind, of scores and dialogues the newest that are not of the test
    split."""
    allow_test: bool = Field(default=False, json_schema_extra=about("Data"))
    """Also learn from what was made from dialogues on test tasks; the model cannot be measured on these tasks then."""
    device: Device = Field(default="auto", json_schema_extra=about("Machine", MAIN, OPERATIONAL))
    """Where to train."""
    devices: int | None = Field(default=None, ge=1, json_schema_extra=about("Several GPUs and machines", OPERATIONAL))
    """With deepspeed: GPUs to train on (of each host), or processes on a CPU; default: every GPU."""
    hostfile: Path | None = Field(default=None, json_schema_extra=about("Several GPUs and machines", OPERATIONAL))
    """With deepspeed: hosts to train on, one `HOST slots=GPUS` a line, or `slurm` for the nodes of the current Slurm
    job; the run must be on a disk that all of them see."""
    zero: int | None = Field(
        default=None, ge=0, le=3, json_schema_extra=about("Several GPUs and machines", OPERATIONAL)
    )
    """With deepspeed: ZeRO stage, which divides among the GPUs: 1 the optimizer, 2 also gradients, 3 also weights;
    default: 3."""
    offload: Offload = Field(default="none", json_schema_extra=about("Several GPUs and machines", OPERATIONAL))
    """With deepspeed: the states that are kept in the host's memory; all needs ZeRO 3."""
    micro_batch_tokens: int | None = Field(default=None, ge=1, json_schema_extra=about("Machine", OPERATIONAL))
    """Tokens of one forward pass; 2048 on a CPU, 16384 on a GPU. Does not change the size of a step."""
    gradient_checkpointing: Literal["auto", "on", "off"] = Field(
        default="auto", json_schema_extra=about("Machine", OPERATIONAL)
    )
    """Recompute the activations of each layer in the backward pass instead of keeping them: less memory, about a third
    more work. auto: on a GPU, for models of a billion parameters and more."""
    packing: TrainPacking = Field(default="tree", json_schema_extra=about("Machine", OPERATIONAL))
    """tree: shared prefixes of a step's sequences are computed once. segments: the same, with the activations of one
    part of the tree in memory at a time, which are computed again in the backward pass. plain: each sequence
    separately, as a check."""
    save_every: int | None = Field(default=None, ge=1, json_schema_extra=about("Checkpoints and logs", OPERATIONAL))
    """Steps between checkpoints; default: one after each epoch."""
    log_to: tuple[LogTarget, ...] = Field(default=(), json_schema_extra=about("Checkpoints and logs", OPERATIONAL))
    """Also log the metrics of each step there; may be given several times."""
    resume: bool = Field(default=False, json_schema_extra=about("Failures, resuming, checks", MAIN, OPERATIONAL))
    """Go on from the last checkpoint of the newest training that did not finish, with all its settings. With other
    settings beside it, of the same training with these, or begin it."""

    @property
    def layout_options(self) -> LayoutOptions:
        return LayoutOptions(
            engine=self.engine,
            device=self.device,
            devices=self.devices,
            hostfile=self.hostfile,
            zero=self.zero,
            offload=self.offload,
        )

    @property
    def lora_options(self) -> LoraOptions:
        return LoraOptions(self.lora, self.lora_alpha, self.lora_target, self.lora_output, self.seed)


class TrainCriticConfig(TrainConfig):
    variant: Literal["advantage", "regression", "no-info"] = Field(
        default="advantage", json_schema_extra=about("Method", MAIN)
    )
    """advantage: equation (3) with the training-time information. no-info: the same without it. regression: a linear
    head on the mean of the hidden states up to a turn, with the information; recipe upstream's has one score for the
    whole dialogue."""
    target: Literal["preference", "binary", "real"] = Field(default="preference", json_schema_extra=about("Method"))
    """What a regression head learns. preference: its scores replace the advantages in equation (2). binary: whether the
    dialogue solves its task. real: the dialogue's reward. The latter two learn from scores (--from SCORES)."""
    normalize: Literal["turn", "trajectory", "none"] | None = Field(default=None, json_schema_extra=about("Method"))
    """How log-ratios are averaged. turn: by turn (the paper). trajectory: over the whole dialogue (recipe upstream).
    none: not at all."""
    holdout: float = Field(default=0.1, ge=0, lt=1, json_schema_extra=about("Data"))
    """Share of the tasks whose preferences are held out to measure the critic on."""
    image_pixels: int = Field(default=512 * 28 * 28, ge=56 * 56, json_schema_extra=about("Method"))
    """Pixels of a screenshot at most, for a regression head on a vision-language model: larger ones are scaled down. A
    token is 784 of them (Qwen2-VL, Qwen2.5-VL) or 1024 (Qwen3-VL)."""
    keep: Literal["best", "last"] | None = Field(default=None, json_schema_extra=about("Checkpoints and logs"))
    """best: the weights of the epoch that ordered most held-out preferences correctly (of equal ones the later). last:
    those of the last epoch. Default: best if preferences are held out."""


class TrainActorConfig(TrainConfig):
    method: str = Field(default="sweet", json_schema_extra=about("Method", MAIN))
    """The credit rule: what is learned, and from which artifact. sweet: step-level pairs. multi-turn-dpo: preferences
    between dialogues. rft: dialogues that solved their task, for pages each task's best. sft: every dialogue of the
    rollouts, good or bad; a warm-up, with --model. grpo, rloo: rewards against those of the task's other dialogues.
    sweet-pg, sweet-pg-candidates: the critic's advantages as weights. opsd: distillation from the model that sees the
    training-time information. istar: rewards of turns by a reward model. docs/credit.md lists all; other packages may
    add some."""
    critic: str | None = Field(default=None, json_schema_extra=about("Method"))
    """The critic that the credit rule asks for advantages (sweet-pg); default: the newest finished one."""
    rule_option: list[str] = Field(default=[], json_schema_extra=about("Method"))
    """An option of the credit rule, as NAME=VALUE; may be given several times."""


def adjacent(order: Order, batch: int) -> int | None:
    """Return the most examples of a group that stay adjacent in an epoch (`sweet.learn.batches.epoch_order`)."""
    return {"examples": 1, "pieces": max(1, batch // 2), "grouped": None}[order]


def order_of(config: TrainConfig, reads: Kind, *, sees_pages: bool = False) -> Order:
    """Return the order of a training's examples.

    `auto` is `pieces` where success or accuracy was measured with it (docs/training.md) and a step computes much fewer
    tokens. Whole dialogues of a task share little more than the request, and sequences with images share nothing.

    Args:
        reads: the kind of artifact that the examples are made of.
        sees_pages: whether they have images.
    """
    if config.shuffle != "auto":
        return config.shuffle
    measured: Kind = "preferences" if isinstance(config, TrainCriticConfig) else "pairs"
    return "pieces" if reads == measured and config.recipe == "paper" and not sees_pages else "examples"


def actor_turn_tokens(config: TrainConfig) -> TurnTokens:
    """Return the tokens of a turn that an actor's training supervises."""
    return config.turn_tokens or "both"


def critic_turn_tokens(config: TrainCriticConfig) -> TurnTokens:
    """Return the tokens of a turn that a critic's training supervises."""
    if config.variant == "regression" or config.recipe == "upstream":
        return "both"
    return config.turn_tokens or CRITIC_TURN_TOKENS


def check_critic_options(config: TrainCriticConfig) -> None:
    """Raise UsageError where options of a critic's training do not go together."""
    if config.beta == 0 and config.target == "preference":
        raise UsageError(
            "Without log-ratios a critic has no preferences to learn.", where=option("beta", 0), fix=option("beta", 0.1)
        )
    published_head = config.variant == "regression" and config.recipe == "upstream"
    if published_head and config.target == "preference" and config.beta != TrainConfig.model_fields["beta"].default:
        what = "The published regression head learns preferences without beta."
        raise UsageError(what, where=option("beta", config.beta), fix=Hint("omit ", option("beta")))
    if config.turn_tokens not in (None, critic_turn_tokens(config)):
        what = "A regression head has no log-ratios to average: it reads thought and reply."
        if config.variant != "regression":
            what = "In the recipe upstream the log-ratios of all tokens of a turn count."
        raise UsageError(what, where=option("turn_tokens", config.turn_tokens), fix=option("turn_tokens", "both"))
    if config.variant != "regression":
        if config.target != "preference":
            what = "Only a regression head has a target: the other variants learn from preferences."
            raise UsageError(what, where=option("target", config.target), fix=option("variant", "regression"))
        if config.image_pixels != TrainCriticConfig.model_fields["image_pixels"].default:
            what = "Only a regression head is shown screenshots: the other variants read the reference's HTML."
            raise UsageError(
                what, where=option("image_pixels", config.image_pixels), fix=option("variant", "regression")
            )
        return
    if config.normalize is not None:
        what = "A regression head has no log-ratios to average."
        raise UsageError(what, where=option("normalize", config.normalize), fix="omit it")
    if config.target != "preference" and config.nll:
        what = "The likelihood term is of the chosen side, and this target also learns from dialogues that failed."
        raise UsageError(
            what, where=option("nll", config.nll), fix=Hint(option("target", "preference"), ", or omit it")
        )
