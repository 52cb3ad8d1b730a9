"""The options of `sweet play`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from sweet.device import Device
from sweet.humans.asking import TRIES
from sweet.llm.base import Effort
from sweet.llm.local import STARTUP_TIMEOUT, EngineChoice
from sweet.llm.scripted import SCRIPTED
from sweet.render.window import PictureRule, Window
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.play.typed import Seat, name_fault
from sweet.stages.base import BEHIND_DASHES, MAIN, OPERATIONAL, OneOrMore, PlannedConfig, about
from sweet.tasks.base import Recipe
from sweet.tasks.markers import MAX_TURNS
from sweet.tasks.trajectory import Thoughts


class PlayConfig(PlannedConfig):
    as_: Seat = Field(default="human", json_schema_extra=about("Dialogue", MAIN))
    """Whom you play: human, who knows the reference and answers the agent, or agent, who asks and delivers the
    answer."""
    name: str = Field(default="person", json_schema_extra=about("Dialogue", MAIN))
    """Your name, which is recorded with your dialogues: letters, digits, spaces and . _ - +. Each name and seat has
    dialogues of its own."""
    task: str = Field(default="code", json_schema_extra=about("Dialogue", MAIN))
    """Kind of task: code, html, or that of an installed package (sweet doctor lists them)."""
    tasks: str | None = Field(default=None, json_schema_extra=about("Data", MAIN))
    """Dataset by name (code: micro, micro-long, micro-parts, colbench; html: pages, websight) or a JSONL file; default:
    as for sweet rollout."""
    split: str = Field(default="train", json_schema_extra=about("Data"))
    """Split to play: train, validation or test."""
    holdout: float | None = Field(default=None, gt=0, lt=1, json_schema_extra=about("Data"))
    """With a file: share of its tasks that are the split test, as for sweet rollout."""
    holdout_validation: float | None = Field(default=None, gt=0, lt=1, json_schema_extra=about("Data"))
    """With a file: share of its tasks that are the split validation, in the same way."""
    agent: str = Field(default="micro", json_schema_extra=about("Agent", MAIN))
    """The agent that you talk to (--as human): micro, an actor of the run by its id (actor-1), a directory or a hub id;
    scripted for a rule-based agent, if the kind of task has one (html)."""
    agent_url: list[str] = Field(default_factory=list, json_schema_extra=about("Agent", MAIN, OPERATIONAL))
    """OpenAI-compatible server of the agent; may be given several times. Without it the agent runs in this process."""
    sim: OneOrMore = Field(default=SCRIPTED, json_schema_extra=about("Simulated human", MAIN))
    """The human that you talk to (--as agent): scripted (tasks with facts, html tasks), or a model that sees the
    reference (html: a vision model). May be given several times: the tasks are spread over these humans."""
    sim_url: list[str] = Field(default_factory=list, json_schema_extra=about("Simulated human", MAIN, OPERATIONAL))
    """OpenAI-compatible server of the simulated human; may be given several times."""
    human_tries: int = Field(default=TRIES, ge=1, json_schema_extra=about("Simulated human"))
    """Replies that a model that plays the human is asked for at each turn until one does not leak the solution."""
    persona: list[str] = Field(default=[], json_schema_extra=about("Simulated human"))
    """How the human speaks, as for sweet rollout: plain, terse, talkative, unsure, slips, german, spanish, chinese, or
    one of --persona-file. May be given several times."""
    persona_file: Path | None = Field(default=None, json_schema_extra=about("Simulated human"))
    """TOML file of personas, as for sweet rollout."""
    num_tasks: int | None = Field(default=None, ge=1, json_schema_extra=about("Data", MAIN))
    """Play only the first N tasks."""
    draw_tasks: bool = Field(default=False, json_schema_extra=about("Data"))
    """Play N random tasks, drawn by the seed, instead of the first N."""
    skip_invalid: bool = Field(default=False, json_schema_extra=about("Data"))
    """Leave out tasks that cannot be scored, instead of refusing them all."""
    samples: int = Field(default=1, ge=1, json_schema_extra=about("Data"))
    """Dialogues for each task."""
    max_turns: int = Field(default=MAX_TURNS, ge=1, json_schema_extra=about("Dialogue"))
    """Maximum number of the agent's turns."""
    temperature: float = Field(default=1.0, ge=0, json_schema_extra=about("Agent"))
    """Sampling temperature of the agent; 0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1, json_schema_extra=about("Agent"))
    """Nucleus sampling (top-p) of the agent."""
    max_tokens: int = Field(default=1024, ge=1, json_schema_extra=about("Agent"))
    """Maximum number of tokens of the agent's reply."""
    max_thought_tokens: int | None = Field(default=None, ge=1, json_schema_extra=about("Agent"))
    """Tokens after which a thought of the agent is ended, so that it replies, as for sweet rollout."""
    effort: Effort | None = Field(default=None, json_schema_extra=about("Agent"))
    """How much an agent that can think is asked to: none, low, medium or high; default: as the model does."""
    thoughts: Thoughts = Field(default="drop", json_schema_extra=about("Agent"))
    """Whether the agent reads its thoughts of earlier turns: drop them from the history, or keep them. You never see
    them."""
    seed: int = Field(default=0, ge=0, json_schema_extra=about("Data"))
    """Seed of the dialogues; with task and sample it names a dialogue. Take that of the rollouts to compare with."""
    prompts: Path | None = Field(default=None, json_schema_extra=about("Dialogue"))
    """Folder with agent.txt, human.txt or both, instead of the packaged prompts."""
    recipe: Recipe = Field(default="paper", json_schema_extra=about("Dialogue"))
    """paper, or upstream to follow the published code where the two differ."""
    window: Window | None = Field(default=None, json_schema_extra=about("Pages"))
    """Pages: size of the browser's window, as for sweet rollout."""
    pictures: PictureRule | None = Field(default=None, json_schema_extra=about("Pages"))
    """Pages: what is shown for images of picsum.photos, as for sweet rollout."""
    skipped: bool = Field(default=False, json_schema_extra=about("Selection", OPERATIONAL))
    """Play the dialogues that you skipped, too."""
    plain: bool = Field(default=False, json_schema_extra=about("Output", MAIN, OPERATIONAL))
    """Read lines from stdin and print on stdout, instead of drawing on the terminal: for screen readers, scripts and
    pipes."""
    serve: str | None = Field(default=None, json_schema_extra=about("Output", MAIN, OPERATIONAL))
    """HOST:PORT, or PORT of this machine: play in a browser instead of this terminal. Whoever can reach the address
    can play, and read the references. Needs the package textual-serve."""
    concurrency: int = Field(default=1, ge=1, json_schema_extra=about("Machine", OPERATIONAL))
    """Requests to a server at once."""
    retry_timeout: float = Field(default=60.0, ge=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds to keep trying a server that cannot be reached."""
    request_timeout: float = Field(default=600.0, gt=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds for one request to a server, until all of its answer has come."""
    follow_redirects: bool = Field(default=False, json_schema_extra=about("Servers", OPERATIONAL))
    """Follow a server's redirects to other hosts too, which then get the dialogues, but not the API key."""
    device: Device = Field(default="auto", json_schema_extra=about("Machine", OPERATIONAL))
    """Where the embedded engine runs."""
    engine: EngineChoice = Field(default="auto", json_schema_extra=about("Servers", OPERATIONAL))
    """Engine of a model without an address: auto (vllm if it is installed and suits the machine), vllm, or embedded."""
    startup_timeout: float = Field(default=STARTUP_TIMEOUT, gt=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds to wait until a vllm that was started answers."""
    vllm_options: list[str] = Field(default_factory=list, json_schema_extra=about("Servers", BEHIND_DASHES))
    """Arguments after -- are passed unchanged to the vllm that is started (in a configuration file: vllm-options)."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if fault := name_fault(name):
            raise ValueError(fault)
        return name

    @model_validator(mode="after")
    def _check_sides(self) -> PlayConfig:
        human = ("sim", "sim_url", "persona", "persona_file", "human_tries")
        for name in human if self.as_ == "human" else ("agent", "agent_url"):
            if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                raise ValueError(f"{name} names the side that you play yourself (as {self.as_}).")
        return self

    def rollout(self) -> RolloutConfig:
        """Return the configuration of a rollout with the same settings. The person's side is `scripted` in it."""
        shared = type(self).model_fields.keys() & RolloutConfig.model_fields.keys() - {"verify", "resume"}
        settings = {name: getattr(self, name) for name in shared}
        return RolloutConfig.model_validate(settings | {("sim" if self.as_ == "human" else "agent"): SCRIPTED})
