"""The options of `sweet train-critic` and `sweet train-actor`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from sweet.errors import UsageError
from sweet.hints import option
from sweet.runs.manifest import Kind
from sweet.stages.base import OPERATIONAL, Names, PlannedConfig, StageConfig, about
from sweet.stages.options import (
    AllowTestConfig,
    CriticConfig,
    DeviceConfig,
    PackingConfig,
    ProtocolConfig,
    SeedConfig,
    SequenceConfig,
)
from sweet.stages.prices import PricedConfig
from sweet.tasks.base import CRITIC_TURN_TOKENS, TurnTokens
from sweet.training.loggers import LogTarget

Engine = Literal["torch", "deepspeed", "openrlhf", "tinker"]
Offload = Literal["none", "optimizer", "all"]
LoraOutput = Literal["merged", "adapter"]
Order = Literal["examples", "pieces", "grouped"]
"""How the examples of an epoch are shuffled (`sweet.learn.batches.epoch_order`)."""
Shuffle = Literal["auto", "examples", "pieces", "grouped"]
"""An order, or the one that suits what is learned (`order_of`)."""
ZERO = 3
"""The default ZeRO stage, which needs the least memory: several devices are mostly used because one is too small."""


class LoggedConfig(StageConfig):
    log_to: tuple[LogTarget, ...] = Field(default=(), json_schema_extra=about("Checkpoints and logs", OPERATIONAL))
    """Also log there the metrics of each step of a training; may be given several times."""


class RuleConfig(CriticConfig):
    rule_option: list[str] = Field(default_factory=list, json_schema_extra=about("Method"))
    """An option of the credit rule, as NAME=VALUE; may be given several times."""


class LoraConfig(SeedConfig):
    """The options of an adapter. The seed is also that of its initial weights."""

    lora: int | None = Field(default=None, ge=1, json_schema_extra=about("Adapter (LoRA)"))
    """Rank of a LoRA adapter to train instead of the whole model; needs peft. With --engine tinker: 16."""
    lora_alpha: int | None = Field(default=None, ge=1, json_schema_extra=about("Adapter (LoRA)"))
    """Weight of the adapter, which is divided by its rank; default: twice the rank."""
    lora_target: list[str] = Field(default_factory=list, json_schema_extra=about("Adapter (LoRA)"))
    """A linear layer to adapt, by the end of its name (q_proj); may be given several times. Default: all but the output
    layer."""
    lora_output: LoraOutput | None = Field(default=None, json_schema_extra=about("Adapter (LoRA)"))
    """adapter: peft's small folder, which needs its base model and peft to be loaded. merged: an ordinary model.
    Default: adapter for models of 50M parameters and more."""


class TrainingConfig(LoggedConfig, LoraConfig, SequenceConfig, PackingConfig, DeviceConfig):
    """What all trainings have, those on recorded data and the one online."""

    lr: float | None = Field(default=None, gt=0, json_schema_extra=about("Optimization"))
    """Peak learning rate, of train-online that of each step. Default: the paper's 2e-7 for models of 100M parameters
    and more, larger ones for small models, of train-online that of the rule; ten times that for LoRA."""
    beta: float = Field(default=0.1, ge=0, json_schema_extra=about("Optimization"))
    """Weight of the log-ratios in a preference loss; 0 (actor only) leaves only the likelihood of the chosen side."""
    nll: float | None = Field(default=None, ge=0, json_schema_extra=about("Optimization"))
    """Weight of the likelihood of the chosen side; default: 0.01 as in the paper, more for a small model, of
    train-online that of the rule."""
    epochs: int | None = Field(default=None, ge=1, json_schema_extra=about("Optimization"))
    """Passes over the data; default: the paper's 4 (1 for the sweet actor and for sft), other numbers for small models,
    of train-online 1 over the dialogues of each step."""
    batch: int | None = Field(default=None, ge=1, json_schema_extra=about("Optimization"))
    """Examples for each update of the weights; default: 8, for rft and sft 32, of train-online all of a step."""
    weight_decay: float = Field(default=0.0, ge=0, json_schema_extra=about("Optimization"))
    """Weight decay of AdamW on matrices; biases and the weights of norms do not decay."""
    max_grad_norm: float = Field(default=1.0, gt=0, json_schema_extra=about("Optimization"))
    """Norm to which a larger gradient is scaled down."""
    devices: int | None = Field(default=None, ge=1, json_schema_extra=about("Several GPUs and machines", OPERATIONAL))
    """GPUs to train on by DeepSpeed (of each host), or processes on a CPU; default: every GPU with --engine deepspeed,
    otherwise one device in the process of this command."""
    zero: int | None = Field(
        default=None, ge=0, le=3, json_schema_extra=about("Several GPUs and machines", OPERATIONAL)
    )
    """With DeepSpeed: ZeRO stage, which divides among the GPUs: 1 the optimizer, 2 also gradients, 3 also weights;
    default: 3."""
    offload: Offload = Field(default="none", json_schema_extra=about("Several GPUs and machines", OPERATIONAL))
    """With DeepSpeed: the states that are kept in the host's memory; all needs ZeRO 3."""
    gradient_checkpointing: Literal["auto", "on", "off"] = Field(
        default="auto", json_schema_extra=about("Machine", OPERATIONAL)
    )
    """Recompute the activations of each layer in the backward pass instead of keeping them: less memory, about a third
    more work. auto: for models of a billion parameters and more, on a CPU of about 300 million and more."""
    save_every: int | None = Field(default=None, ge=1, json_schema_extra=about("Checkpoints and logs", OPERATIONAL))
    """Steps between checkpoints; default: one after each epoch, of train-online 5 steps. One is also written after 10
    minutes, and on Ctrl-C, SIGTERM and SIGHUP. After a crash the steps since the last one are learned again."""

    @property
    def zero_stage(self) -> int:
        """The ZeRO stage, given or by default."""
        return ZERO if self.zero is None else self.zero


class TrainConfig(PlannedConfig, PricedConfig, TrainingConfig, ProtocolConfig, AllowTestConfig):
    """The options that both trainings have.

    Attributes:
        stage: the name of the stage.
        makes: the kind of its artifact.
    """

    stage: ClassVar[str] = "train-actor"
    makes: ClassVar[Kind] = "actor"

    model: str | None = Field(default=None, json_schema_extra=about("Method"))
    """The model to start from: micro, a directory or a hub id; default: the agent of the rollouts."""
    engine: Engine = Field(default="torch", json_schema_extra=about("Several GPUs and machines", OPERATIONAL))
    """torch on one device, DeepSpeed on several, an adapter by the service of the Tinker interface that TINKER_BASE_URL
    names (docs/tinker.md), or, only for the actor's pairs, OpenRLHF's DPO."""
    warmup: float = Field(default=0.03, ge=0, le=1, json_schema_extra=about("Optimization"))
    """Share of the steps in which the learning rate rises to its peak; then it falls to a tenth of it by a cosine."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5, json_schema_extra=about("Optimization"))
    """Probability that a preference is taken to be the wrong way round, in the loss (conservative DPO)."""
    shuffle: Shuffle = Field(default="auto", json_schema_extra=about("Optimization"))
    """examples: in random order. pieces: at most half a batch of a dialogue's pairs (of a task's preferences) together;
    grouped: all of them. The more are together the faster, and the less a step's examples vary. auto: pieces for
    step-level pairs and a critic's preferences; examples for whole dialogues, protocol upstream and screenshots."""
    limit: int | None = Field(default=None, ge=1, json_schema_extra=about("Data"))
    """Train on at most this many examples, drawn by the seed."""
    from_: Names = Field(default_factory=list, json_schema_extra=about("Data"))
    """An artifact to learn from; may be given several times, to learn from all of them and start from the agent of the
    last. Default: the newest finished one of its kind, of scores and dialogues the newest that are not of the test
    split."""
    hostfile: Path | None = Field(default=None, json_schema_extra=about("Several GPUs and machines", OPERATIONAL))
    """With deepspeed: hosts to train on, one `HOST slots=GPUS` a line, or `slurm` for the nodes of the current Slurm
    job; the run must be on a disk that all of them see."""

    @property
    def supervised(self) -> TurnTokens:
        """The tokens of a turn that the training supervises."""
        return self.turn_tokens or "both"


class TrainCriticConfig(TrainConfig):
    stage = "train-critic"
    makes = "critic"
    main_options = ("model", "engine", "lora", "lr", "epochs", "batch", "from_", "device", "variant", "resume")

    variant: Literal["advantage", "regression", "no-info"] = Field(
        default="advantage", json_schema_extra=about("Method")
    )
    """advantage: equation (3) with the training-time information. no-info: the same without it. regression: a linear
    head on the mean of the hidden states up to a turn, with the information; protocol upstream's has one score for the
    whole dialogue."""
    target: Literal["preference", "binary", "real"] = Field(default="preference", json_schema_extra=about("Method"))
    """What a regression head learns. preference: its scores replace the advantages in equation (2). binary: whether the
    dialogue solves its task. real: the dialogue's reward. The latter two learn from scores (--from SCORES)."""
    normalize: Literal["turn", "trajectory", "none"] | None = Field(default=None, json_schema_extra=about("Method"))
    """How log-ratios are averaged. turn: by turn (the paper). trajectory: over the whole dialogue (protocol upstream).
    none: not at all."""
    holdout: float = Field(default=0.1, ge=0, lt=1, json_schema_extra=about("Data"))
    """Share of the tasks whose preferences are held out to measure the critic on."""
    image_pixels: int = Field(default=512 * 28 * 28, ge=56 * 56, json_schema_extra=about("Method"))
    """Pixels of a screenshot at most, for a regression head on a vision-language model: larger ones are scaled down. A
    token is 784 of them (Qwen2-VL, Qwen2.5-VL) or 1024 (Qwen3-VL)."""
    keep: Literal["best", "last"] | None = Field(default=None, json_schema_extra=about("Checkpoints and logs"))
    """best: the weights of the epoch that ordered most held-out preferences correctly (of equal ones the later). last:
    those of the last epoch. Default: best if preferences are held out."""

    @property
    def supervised(self) -> TurnTokens:
        if self.variant == "regression" or self.protocol == "upstream":
            return "both"
        return self.turn_tokens or CRITIC_TURN_TOKENS


class TrainActorConfig(TrainConfig, RuleConfig):
    main_options = ("model", "engine", "lora", "lr", "epochs", "batch", "from_", "device", "algorithm", "resume")

    algorithm: str = Field(default="sweet", json_schema_extra=about("Method"))
    """The credit rule: what is learned, and from which artifact. sweet: step-level pairs. multi-turn-dpo: preferences
    between dialogues. rft: dialogues that solved their task, for pages each task's best. sft: every dialogue of the
    rollouts, good or bad; a warm-up, with --model. grpo, rloo: rewards against those of the task's other dialogues.
    gigpo, mt-grpo, tree-grpo, mr, igpo, infopo, istar, itpo: an advantage for each turn. sweet-pg, sweet-pg-candidates:
    the critic's advantages as weights. opsd: distillation from the model that sees the training-time information.
    docs/credit.md says more; other packages may add some."""


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
    return "pieces" if reads == measured and config.protocol == "paper" and not sees_pages else "examples"


def check_critic_options(config: TrainCriticConfig) -> None:
    """Raise UsageError where options of a critic's training do not go together."""
    head, pairs = config.variant == "regression", config.target == "preference"
    fields = TrainCriticConfig.model_fields

    def refuse(wrong: object, name: str, what: str, fix: str) -> None:
        if wrong:
            raise UsageError(what, where=option(name, getattr(config, name)), fix=fix)

    what = "Without log-ratios a critic has no preferences to learn."
    refuse(config.beta == 0 and pairs, "beta", what, "--beta 0.1")
    what = "The published regression head learns preferences without beta."
    published = head and pairs and config.protocol == "upstream"
    refuse(published and config.beta != fields["beta"].default, "beta", what, "omit --beta")
    what = "In the protocol upstream the log-ratios of all tokens of a turn count."
    if head:
        what = "A regression head has no log-ratios to average: it reads thought and reply."
    refuse(config.turn_tokens not in (None, config.supervised), "turn_tokens", what, "--turn-tokens both")
    what = "Only a regression head has a target: the other variants learn from preferences."
    refuse(not head and not pairs, "target", what, "--variant regression")
    what = "Only a regression head is shown screenshots: the other variants read the reference's HTML."
    has_pixels = config.image_pixels != fields["image_pixels"].default
    refuse(not head and has_pixels, "image_pixels", what, "--variant regression")
    what = "A regression head has no log-ratios to average."
    refuse(head and config.normalize is not None, "normalize", what, "omit it")
    what = "The likelihood term is of the chosen side, and this target also learns from dialogues that failed."
    refuse(head and not pairs and config.nll, "nll", what, "--target preference, or omit it")
