"""The options of `sweet rollout`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from sweet.device import Device
from sweet.llm.local import STARTUP_TIMEOUT, EngineChoice
from sweet.stages.base import BEHIND_DASHES, OPERATIONAL, PlannedConfig, formerly
from sweet.tasks.base import Recipe
from sweet.tasks.markers import MAX_TURNS


class RolloutConfig(PlannedConfig):
    task: str = "code"
    """Kind of task: code, html, or that of an installed package (sweet doctor lists them)."""
    tasks: str | None = None
    """Dataset by name (code: micro, micro-long, colbench; html: pages, websight) or a JSONL file; without it that which
    the kind of task takes: ColBench or WebSight where it is downloaded, else micro or pages."""
    split: str = "train"
    """Split of a named dataset: train, validation or test."""
    agent: str = "micro"
    """The agent's model: micro, a directory (a trained actor too) or a hub id; scripted for an agent
    of rules, where the kind of task has one (html)."""
    agent_url: list[str] = Field(default_factory=list, json_schema_extra=OPERATIONAL)
    """OpenAI-compatible server of the agent; may be given several times. Without one the agent runs in this process."""
    sim: str = "scripted"
    """The simulated human: scripted (tasks with facts, html tasks), or a model that sees the reference (html: a vision
    model)."""
    sim_url: list[str] = Field(default_factory=list, json_schema_extra=OPERATIONAL)
    """OpenAI-compatible server of the simulated human; may be given several times."""
    num_tasks: int | None = Field(default=None, ge=1)
    """Play only the first N tasks."""
    draw_tasks: bool = False
    """Play N tasks that the seed draws, in the place of the first N."""
    samples: int = Field(default=1, ge=1)
    """Dialogues for each task."""
    max_turns: int = Field(default=MAX_TURNS, ge=1)
    """The agent's turns at most."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature of the agent; 0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus of the agent's sampling."""
    max_tokens: int = Field(default=1024, ge=1)
    """Tokens of one reply at most."""
    seed: int = Field(default=0, ge=0)
    """Seed of the whole rollout; with task and sample it names a dialogue."""
    prompts: Path | None = None
    """Folder with agent.txt, human.txt or both, in place of the packaged prompts."""
    recipe: Recipe = "paper"
    """paper, or upstream to follow the published code where the two differ."""
    token_limit: int | None = Field(default=None, ge=1)
    """Tokens of one dialogue, prompts included, at which it ends with what was delivered; without it there is none."""
    ray: str | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """Render the pages that the human sees on the nodes of a Ray cluster: auto (that of this machine), HOST:PORT, or
    local to start one here."""
    concurrency: int = Field(default=128, ge=1, json_schema_extra=OPERATIONAL)
    """Dialogues under way at most. SIGUSR1 doubles it, SIGUSR2 halves it, a number in RUN/concurrency sets it."""
    deadline: float = Field(default=600.0, gt=0, json_schema_extra=OPERATIONAL)
    """Seconds after which a dialogue is given up; time for rendering pages does not count."""
    retry_timeout: float = Field(default=60.0, ge=0, json_schema_extra={**OPERATIONAL, **formerly("patience")})
    """Seconds to keep trying a server that cannot be reached."""
    fail_on_error: float = Field(default=0.1, ge=0, json_schema_extra=OPERATIONAL)
    """Failed dialogues that are still no error: a share below 1, or a count."""
    new: bool = Field(default=False, json_schema_extra=OPERATIONAL)
    """Begin new rollouts, though unfinished ones with other settings are there."""
    device: Device = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Where the embedded engine runs."""
    engine: EngineChoice = Field(default="auto", json_schema_extra=OPERATIONAL)
    """What runs a model without an address: vllm, started and ended here, where it is installed and fits the machine
    (auto), always, or never (embedded). The agent micro is always embedded."""
    startup_timeout: float = Field(
        default=STARTUP_TIMEOUT, gt=0, json_schema_extra={**OPERATIONAL, **formerly("start_up")}
    )
    """Seconds that a vllm started here may take until it answers."""
    vllm_options: list[str] = Field(default_factory=list, json_schema_extra=BEHIND_DASHES)
    """What follows -- goes to the vllm that is started here, as it stands (in a configuration file: vllm-options)."""
