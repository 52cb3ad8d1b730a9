"""The options of `sweet train-online`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sweet.device import Device
from sweet.humans.asking import TRIES
from sweet.llm.base import Effort
from sweet.llm.local import STARTUP_TIMEOUT, EngineChoice
from sweet.render.window import PictureRule, Window
from sweet.rollouts.config import RolloutConfig
from sweet.sandbox.tiers import TierChoice
from sweet.stages.base import BEHIND_DASHES, MAIN, OPERATIONAL, OneOrMore, PlannedConfig, TrainPacking, about
from sweet.stages.prices import PricedConfig
from sweet.tasks.base import HumanSees, TurnTokens
from sweet.tasks.markers import MAX_TURNS
from sweet.tasks.splits import TRAIN, VALIDATION
from sweet.tasks.trajectory import Thoughts
from sweet.training.config import LoraOptions, LoraOutput, Offload, PushedConfig
from sweet.training.dialogue_tables import ROWS
from sweet.training.loggers import LogTarget


class TrainOnlineConfig(PlannedConfig, PricedConfig, PushedConfig):
    task: str = Field(default="code", json_schema_extra=about("Dialogue"))
    """Kind of task: code, html, or that of an installed package (sweet doctor lists them)."""
    algorithm: str = Field(default="grpo", json_schema_extra=about("Method", MAIN))
    """The credit rule: grpo, rloo, istar, opsd, sweet-pg, rft, or that of an installed package (docs/credit.md)."""
    rule_option: list[str] = Field(default=[], json_schema_extra=about("Method"))
    """An option of the credit rule, as NAME=VALUE; may be given several times."""
    critic: str | None = Field(default=None, json_schema_extra=about("Method"))
    """The critic of the run that a rule asks, such as sweet-pg; default: the newest finished one."""
    tasks_per_step: int = Field(default=16, ge=1, json_schema_extra=about("Method", MAIN))
    """Tasks that are played for each step."""
    group: int = Field(default=8, ge=1, json_schema_extra=about("Method", MAIN))
    """Dialogues for each task of a step."""
    steps: int | None = Field(default=None, ge=1, json_schema_extra=about("Method", MAIN))
    """Steps, each of which plays, scores, learns and gives the new weights to the sampler; default: 100, without a
    limit of tokens or seconds."""
    generated_tokens: int | None = Field(default=None, ge=1, json_schema_extra=about("Method", MAIN))
    """End after the step in which the agent has written so many tokens, validation excluded."""
    seconds: float | None = Field(default=None, gt=0, json_schema_extra=about("Method"))
    """End after the step in which the training has taken so many seconds, those before a resumption included."""
    staleness: int = Field(default=0, ge=0, json_schema_extra=about("Method", MAIN))
    """Dialogues of the next K steps may be under way while a step is learned; the rule corrects their probabilities. 0:
    every dialogue is played by the newest weights."""
    stop_on_collapse: bool = Field(default=False, json_schema_extra=about("Method", MAIN))
    """End when rewards, leaks, entropies or limits show a collapse (docs/online.md), and keep the best actor."""
    validate_every: int = Field(default=0, ge=0, json_schema_extra=about("Method"))
    """Play validation tasks after every N steps and keep the actor that solves most of them, or whose mean reward is
    highest where no task counts as solved (html); 0 never does."""
    keep: Literal["best", "last"] = Field(default="best", json_schema_extra=about("Method"))
    """With validation, the weights that are the actor: those that did best on validation tasks, or the last."""
    validation_tasks: int = Field(default=100, ge=1, json_schema_extra=about("Method"))
    """Validation tasks to play, at most."""
    deterministic: bool = Field(default=False, json_schema_extra=about("Method"))
    """Sample one reply at a time and without the cache of prefixes, so that the same command ends with bitwise the same
    weights on the same machine. Much slower."""
    tasks: str | None = Field(default=None, json_schema_extra=about("Data", MAIN))
    """Dataset by name or a JSONL file, as for sweet rollout; default: the one of the kind of task."""
    holdout: float | None = Field(default=None, gt=0, lt=1, json_schema_extra=about("Data"))
    """With a file: share of its tasks that are the split test, as for sweet rollout."""
    holdout_validation: float | None = Field(default=None, gt=0, lt=1, json_schema_extra=about("Data"))
    """With a file: share of its tasks that are the split validation, in the same way."""
    num_tasks: int | None = Field(default=None, ge=1, json_schema_extra=about("Data"))
    """Play only the first N training tasks."""
    skip_invalid: bool = Field(default=False, json_schema_extra=about("Data"))
    """Leave out tasks that cannot be scored instead of refusing them all."""
    agent: str = Field(default="micro", json_schema_extra=about("Agent", MAIN))
    """The model to start from: micro, an actor of the run by its id (actor-1), a directory or a hub id."""
    agent_url: list[str] = Field(default_factory=list, json_schema_extra=about("Agent", MAIN, OPERATIONAL))
    """vLLM server that serves this model, started with VLLM_SERVER_DEV_MODE=1, and sees the folder of the run; may be
    given several times. Without it the model is sampled here."""
    max_turns: int = Field(default=MAX_TURNS, ge=1, json_schema_extra=about("Dialogue"))
    """Maximum number of the agent's turns."""
    max_tokens: int = Field(default=1024, ge=1, json_schema_extra=about("Agent"))
    """Maximum number of tokens of a reply."""
    max_thought_tokens: int | None = Field(default=None, ge=1, json_schema_extra=about("Agent"))
    """Tokens after which a thought of the agent is ended, in addition to --max-tokens."""
    effort: Effort | None = Field(default=None, json_schema_extra=about("Agent"))
    """How much an agent that can think is asked to; default: as the model does."""
    thoughts: Thoughts = Field(default="drop", json_schema_extra=about("Agent"))
    """Whether the agent reads its thoughts of earlier turns."""
    sim: OneOrMore = Field(default="scripted", json_schema_extra=about("Simulated human", MAIN))
    """The simulated human: scripted, or a model that sees the reference; may be given several times, as for rollout."""
    sim_url: list[str] = Field(default_factory=list, json_schema_extra=about("Simulated human", OPERATIONAL))
    """OpenAI-compatible server of the simulated human; may be given several times."""
    human: HumanSees = Field(default="code", json_schema_extra=about("Simulated human"))
    """What a model that plays the human knows the task by: code, or spec, its specification."""
    human_tries: int = Field(default=TRIES, ge=1, json_schema_extra=about("Simulated human"))
    """Replies that a model that plays the human is asked for at each turn until one does not leak the solution."""
    persona: list[str] = Field(default=[], json_schema_extra=about("Simulated human"))
    """How the human speaks, as for sweet rollout; may be given several times."""
    persona_file: Path | None = Field(default=None, json_schema_extra=about("Simulated human"))
    """TOML file of personas, as for sweet rollout."""
    prompts: Path | None = Field(default=None, json_schema_extra=about("Dialogue"))
    """Folder with prompts instead of the packaged ones, as for sweet rollout."""
    window: Window | None = Field(default=None, json_schema_extra=about("Pages"))
    """Pages: size of the browser's window, WIDTHxHEIGHT, for the human and the scores; default: 1280x720."""
    pictures: PictureRule | None = Field(default=None, json_schema_extra=about("Pages"))
    """Pages: what is shown for images of picsum.photos: placeholder (gradients; default), or photo, as for sweet
    rollout."""
    similarity: str | None = Field(default=None, json_schema_extra=about("Pages"))
    """Pages: the model that compares screenshots, as for sweet eval: clip, a directory or hub id, or pixels. Default:
    clip if its weights are on this machine, otherwise pixels."""
    lr: float | None = Field(default=None, gt=0, json_schema_extra=about("Optimization"))
    """Learning rate, the same at each step; default: that of the rule for a model of this size, ten times that for
    LoRA."""
    beta: float = Field(default=0.1, ge=0, json_schema_extra=about("Optimization"))
    """Weight of the log-ratios, of a rule with a preference loss."""
    nll: float | None = Field(default=None, ge=0, json_schema_extra=about("Optimization"))
    """Weight of the likelihood; default: that of the rule."""
    epochs: int = Field(default=1, ge=1, json_schema_extra=about("Optimization"))
    """Passes over the dialogues of a step."""
    batch: int | None = Field(default=None, ge=1, json_schema_extra=about("Optimization"))
    """Examples for each update of the weights; default: all of a step together."""
    seed: int = Field(default=0, ge=0, json_schema_extra=about("Optimization"))
    """Seed of the order of the tasks, of sampling and of training."""
    lora: int | None = Field(default=None, ge=1, json_schema_extra=about("Adapter (LoRA)"))
    """Rank of a LoRA adapter to train instead of the whole model; needs peft."""
    lora_alpha: int | None = Field(default=None, ge=1, json_schema_extra=about("Adapter (LoRA)"))
    """Weight of the adapter, which is divided by its rank; default: twice the rank."""
    lora_target: list[str] = Field(default_factory=list, json_schema_extra=about("Adapter (LoRA)"))
    """A linear layer to adapt, by the end of its name; several are allowed. Default: all but the output layer."""
    lora_output: LoraOutput = Field(default="merged", json_schema_extra=about("Adapter (LoRA)"))
    """merged: an ordinary model. adapter: peft's small folder."""
    max_length: int | None = Field(default=None, ge=8, json_schema_extra=about("Method"))
    """Tokens of a sequence at most; longer dialogues lose early turns. Default: the model's context."""
    turn_tokens: TurnTokens | None = Field(default=None, json_schema_extra=about("Method"))
    """The tokens of a thinking agent's turns that are learned: both, thought and reply together (default), reply or
    separate."""
    device: Device = Field(default="auto", json_schema_extra=about("Machine", OPERATIONAL))
    """Where to train, and where the embedded engine samples."""
    devices: int | None = Field(default=None, ge=1, json_schema_extra=about("Several GPUs and machines", OPERATIONAL))
    """GPUs to train on, or processes on a CPU, by DeepSpeed; default: one device, in the process of this command."""
    zero: int | None = Field(
        default=None, ge=0, le=3, json_schema_extra=about("Several GPUs and machines", OPERATIONAL)
    )
    """With --devices: ZeRO stage, which divides among the GPUs: 1 the optimizer, 2 also gradients, 3 also weights;
    default: 3."""
    offload: Offload = Field(default="none", json_schema_extra=about("Several GPUs and machines", OPERATIONAL))
    """With --devices: the states that are kept in the host's memory; all needs ZeRO 3."""
    engine: EngineChoice = Field(default="auto", json_schema_extra=about("Servers", OPERATIONAL))
    """Engine of a model without an address: auto, vllm, or embedded; a vllm is started and stopped by this command."""
    concurrency: int = Field(default=128, ge=1, json_schema_extra=about("Machine", OPERATIONAL))
    """Maximum number of dialogues at once."""
    deadline: float = Field(default=600.0, gt=0, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Seconds after which a dialogue fails; time for rendering pages does not count."""
    fail_on_error: float = Field(default=0.1, ge=0, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Number of failed dialogues of a step that is tolerated: a share below 1, or a count; with more the training
    stops."""
    micro_batch_tokens: int | None = Field(default=None, ge=1, json_schema_extra=about("Machine", OPERATIONAL))
    """Tokens of one forward pass; 2048 on a CPU, 16384 on a GPU."""
    gradient_checkpointing: Literal["auto", "on", "off"] = Field(
        default="auto", json_schema_extra=about("Machine", OPERATIONAL)
    )
    """Recompute the activations of each layer in the backward pass, as for sweet train-actor."""
    packing: TrainPacking = Field(default="tree", json_schema_extra=about("Machine", OPERATIONAL))
    """tree: shared prefixes of a step's sequences are computed once. segments: the same, with the activations of one
    part of the tree in memory at a time, which are computed again in the backward pass. plain: each sequence
    separately, as a check."""
    sandbox: TierChoice = Field(default="auto", json_schema_extra=about("Machine", OPERATIONAL))
    """Sandbox tier for the answers, as for sweet eval."""
    workers: int | None = Field(default=None, ge=1, json_schema_extra=about("Machine", OPERATIONAL))
    """Answers to run in parallel, or browsers for pages; default: by the machine's size."""
    retry_timeout: float = Field(default=60.0, ge=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds to keep trying a server that cannot be reached."""
    request_timeout: float = Field(default=600.0, gt=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds for one request to a server, until all of its answer has come."""
    follow_redirects: bool = Field(default=False, json_schema_extra=about("Servers", OPERATIONAL))
    """Follow a server's redirects to other hosts too."""
    startup_timeout: float = Field(default=STARTUP_TIMEOUT, gt=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds to wait until a vllm that was started answers."""
    vllm_options: list[str] = Field(default_factory=list, json_schema_extra=about("Servers", BEHIND_DASHES))
    """Arguments after -- are passed unchanged to the vllm that is started (in a configuration file: vllm-options)."""
    save_every: int = Field(default=5, ge=1, json_schema_extra=about("Checkpoints and logs", OPERATIONAL))
    """Steps between checkpoints. After a crash the steps since then are learned again from their recorded dialogues."""
    log_to: tuple[LogTarget, ...] = Field(default=(), json_schema_extra=about("Checkpoints and logs", OPERATIONAL))
    """Also log the metrics of each step, and tables of dialogues, there; may be given several times."""
    log_dialogues: int = Field(
        default=ROWS, ge=0, le=1000, json_schema_extra=about("Checkpoints and logs", OPERATIONAL)
    )
    """Dialogues of each table that --log-to sends to W&B and Trackio: of each step, and of the same tasks at each
    validation; 0 sends no texts."""

    @property
    def most_steps(self) -> int | None:
        """The number of steps after which the training ends in any case; None if only a budget ends it."""
        unlimited = self.generated_tokens is None and self.seconds is None
        return STEPS if self.steps is None and unlimited else self.steps

    @property
    def lora_options(self) -> LoraOptions:
        return LoraOptions(self.lora, self.lora_alpha, self.lora_target, self.lora_output, self.seed)

    def rollout(self, *, validation: bool = False) -> RolloutConfig:
        """Return the options by which the dialogues on training or validation tasks are played.

        Tokens are sampled from the model's own distribution, temperature 1 without top-p: the recorded probabilities
        are of this distribution.
        """
        shared = RolloutConfig.model_fields.keys() & type(self).model_fields.keys()
        options: dict[str, Any] = {name: getattr(self, name) for name in shared if name in self.model_fields_set}
        split = VALIDATION if validation else TRAIN
        number = {"num_tasks": self.validation_tasks} if validation else {}
        more: dict[str, Any] = {"task": self.task, "split": split, "agent": self.agent, "max_turns": self.max_turns}
        return RolloutConfig.model_validate(options | number | more)


STEPS = 100
"""Steps of a training without any limit."""
