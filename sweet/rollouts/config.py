"""The options of `sweet rollout`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from sweet.device import Device
from sweet.judges.options import JUDGES_OF_OPTION, JudgeName
from sweet.llm.local import STARTUP_TIMEOUT, EngineChoice
from sweet.render.window import PictureRule, Window
from sweet.stages.base import ADDED, BEHIND_DASHES, OPERATIONAL, PlannedConfig, formerly
from sweet.tasks.base import Recipe, ReferenceContext
from sweet.tasks.markers import MAX_TURNS

CHOOSERS_OF_OPTION = {**JUDGES_OF_OPTION, "critic": ("critic",)}
"""The options that only some judges of --best-of accept, with those judges."""


class RolloutConfig(PlannedConfig):
    task: str = "code"
    """Kind of task: code, html, or that of an installed package (sweet doctor lists them)."""
    tasks: str | None = None
    """Dataset by name (code: micro, micro-long, colbench; html: pages, websight) or a JSONL file; by default the one of
    the kind of task: ColBench or WebSight if it is downloaded, else micro or pages."""
    split: str = "train"
    """Split of a named dataset: train, validation or test."""
    agent: str = "micro"
    """The agent's model: micro, a directory (such as a trained actor) or a hub id; scripted for a rule-based agent, if
    the kind of task has one (html)."""
    agent_url: list[str] = Field(default_factory=list, json_schema_extra=OPERATIONAL)
    """OpenAI-compatible server of the agent; may be given several times. Without it the agent runs in this process."""
    sim: str = "scripted"
    """The simulated human: scripted (tasks with facts, html tasks), or a model that sees the reference (html: a vision
    model)."""
    sim_url: list[str] = Field(default_factory=list, json_schema_extra=OPERATIONAL)
    """OpenAI-compatible server of the simulated human; may be given several times."""
    num_tasks: int | None = Field(default=None, ge=1)
    """Play only the first N tasks."""
    draw_tasks: bool = False
    """Play N random tasks, drawn by the seed, instead of the first N."""
    samples: int = Field(default=1, ge=1)
    """Dialogues for each task."""
    max_turns: int = Field(default=MAX_TURNS, ge=1)
    """Maximum number of the agent's turns."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature of the agent; 0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling (top-p) of the agent."""
    max_tokens: int = Field(default=1024, ge=1)
    """Maximum number of tokens of a reply."""
    seed: int = Field(default=0, ge=0)
    """Seed of the whole rollout; with task and sample it names a dialogue."""
    prompts: Path | None = None
    """Folder with agent.txt, human.txt or both, instead of the packaged prompts."""
    recipe: Recipe = "paper"
    """paper, or upstream to follow the published code where the two differ."""
    window: Window | None = Field(default=None, json_schema_extra=ADDED)
    """Pages: size of the browser's window, WIDTHxHEIGHT; by default 1280x720, with recipe upstream the published code's
    1366x682."""
    pictures: PictureRule | None = Field(default=None, json_schema_extra=ADDED)
    """Pages: what is shown for images of picsum.photos: placeholder (gradients), or photo, the one that the published
    code shows (sweet data assets --photo). By default placeholder, with recipe upstream photo if it is downloaded."""
    token_limit: int | None = Field(default=None, ge=1)
    """Tokens of a dialogue, prompts and all candidates included, at which it ends with the answer so far; no limit by
    default."""
    best_of: int | None = Field(default=None, ge=1, json_schema_extra=ADDED)
    """Sample N replies at each turn of the agent; the judge chooses the one that the dialogue goes on with. 1 is the
    ordinary rollout, without a judge."""
    judge: JudgeName | None = Field(default=None, json_schema_extra=ADDED)
    """What chooses with --best-of: a critic of the run (default), a language model that scores each reply
    (--judge-model), or a control. oracle: the credit that the tasks themselves know. random: chance. untrained: the
    model that critics start from. All but random and critics of the variant no-info see the training-time
    information."""
    critic: str | None = Field(default=None, json_schema_extra=ADDED)
    """The critic that chooses; default: the newest finished one."""
    judge_model: str | None = Field(default=None, json_schema_extra=ADDED)
    """The model that chooses with --judge llm: a directory or a hub id."""
    judge_url: list[str] = Field(default_factory=list, json_schema_extra=OPERATIONAL)
    """OpenAI-compatible server of that model; may be given several times. Without one it runs on this machine."""
    judge_prompt: Path | None = Field(default=None, json_schema_extra=ADDED)
    """File with the judge's prompt, instead of the packaged one; without {reference} in it the judge does not see the
    training-time information."""
    judge_tokens: int = Field(default=512, ge=1, json_schema_extra=ADDED)
    """Tokens of the judge's answer at most; a model that reasons first needs more."""
    reference: str | None = Field(default=None, json_schema_extra=ADDED)
    """The frozen model that the critic is measured against; its starting model where not given. For --judge untrained
    the model that judges; the agent where not given."""
    reference_context: ReferenceContext | None = Field(default=None, json_schema_extra=ADDED)
    """What the critic's reference reads before a reply: hidden, as the critic does, or dialogue; see sweet rank."""
    max_length: int | None = Field(default=None, ge=8, json_schema_extra=ADDED)
    """Tokens of a sequence that a critic or untrained judges at most; longer ones lose early turns. Its context where
    not given."""
    ray: str | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """Use the nodes of a Ray cluster, auto (that of this machine), HOST:PORT, or local to start one here: to render the
    pages that the human sees, or, on tasks without pages, to run the critic of --best-of (all nodes must see the run's
    folder)."""
    concurrency: int = Field(default=128, ge=1, json_schema_extra=OPERATIONAL)
    """Maximum number of dialogues at once. SIGUSR1 doubles it, SIGUSR2 halves it, a number in RUN/concurrency sets
    it."""
    deadline: float = Field(default=600.0, gt=0, json_schema_extra=OPERATIONAL)
    """Seconds after which a dialogue fails; time for rendering pages, and waiting for the judge of --best-of, does not
    count."""
    retry_timeout: float = Field(default=60.0, ge=0, json_schema_extra={**OPERATIONAL, **formerly("patience")})
    """Seconds to keep trying a server that cannot be reached."""
    request_timeout: float = Field(default=600.0, gt=0, json_schema_extra=OPERATIONAL)
    """Seconds for one request to a server, until all of its answer has come."""
    follow_redirects: bool = Field(default=False, json_schema_extra=OPERATIONAL)
    """Follow a server's redirects to other hosts too, which then get the dialogues, but not the API key."""
    fail_on_error: float = Field(default=0.1, ge=0, json_schema_extra=OPERATIONAL)
    """Number of failed dialogues that is tolerated: a share below 1, or a count."""
    new: bool = Field(default=False, json_schema_extra=OPERATIONAL)
    """Start new rollouts even if unfinished ones with other settings exist."""
    device: Device = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Where the embedded engine runs."""
    engine: EngineChoice = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Engine of a model without an address: auto (vllm if it is installed and suits the machine), vllm, or embedded. A
    vllm is started and stopped by this command. The agent micro is always embedded."""
    startup_timeout: float = Field(
        default=STARTUP_TIMEOUT, gt=0, json_schema_extra={**OPERATIONAL, **formerly("start_up")}
    )
    """Seconds to wait until a vllm that was started answers."""
    vllm_options: list[str] = Field(default_factory=list, json_schema_extra=BEHIND_DASHES)
    """Arguments after -- are passed unchanged to the vllm that is started (in a configuration file: vllm-options)."""

    @model_validator(mode="before")
    @classmethod
    def _one_candidate_is_ordinary(cls, settings: Any) -> Any:
        """Leave out the options of the judge where the best of one is chosen, so that the ordinary rollout is known."""
        if not isinstance(settings, Mapping) or settings.get("best_of") not in (1, "1"):
            return settings
        choosing = {"best_of", "judge", "judge_tokens", *CHOOSERS_OF_OPTION}
        return {name: value for name, value in settings.items() if name not in choosing}
