"""The options of `sweet rollout`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from sweet.device import Device
from sweet.humans.asking import TRIES
from sweet.judges.options import JUDGES_OF_OPTION, JudgeName
from sweet.llm.base import Effort
from sweet.llm.local import STARTUP_TIMEOUT, EngineChoice
from sweet.render.window import PictureRule, Window
from sweet.stages.base import BEHIND_DASHES, MAIN, OPERATIONAL, OneOrMore, PlannedConfig, about
from sweet.stages.prices import PricedConfig
from sweet.tasks.base import HumanSees, Recipe, ReferenceContext, TurnTokens
from sweet.tasks.markers import MAX_TURNS
from sweet.tasks.trajectory import Thoughts

CHOOSERS_OF_OPTION = {**JUDGES_OF_OPTION, "critic": ("critic",)}
"""The options that only some judges of --best-of accept, with those judges."""


class RolloutConfig(PlannedConfig, PricedConfig):
    task: str = Field(default="code", json_schema_extra=about("Dialogue", MAIN))
    """Kind of task: code, html, or that of an installed package (sweet doctor lists them)."""
    tasks: str | None = Field(default=None, json_schema_extra=about("Data", MAIN))
    """Dataset by name (code: micro, micro-long, micro-parts, colbench; html: pages, websight) or a JSONL file; default:
    the one of the kind of task: ColBench or WebSight if it is downloaded, else micro or pages."""
    split: str = Field(default="train", json_schema_extra=about("Data", MAIN))
    """Split to play: train, validation or test. A file has splits if its rows name one ("split") or with --holdout;
    otherwise all of its tasks are played, as this split."""
    holdout: float | None = Field(default=None, gt=0, lt=1, json_schema_extra=about("Data"))
    """With a file: share of its tasks that are the split test, by a hash of the problem, so that a task keeps its split
    when rows are added. Give the same share to each rollout."""
    holdout_validation: float | None = Field(default=None, gt=0, lt=1, json_schema_extra=about("Data"))
    """With a file: share of its tasks that are the split validation, in the same way."""
    agent: str = Field(default="micro", json_schema_extra=about("Agent", MAIN))
    """The agent's model: micro, micro-parts (for the dataset of this name), an actor of the run by its id
    (actor-1), a directory or a hub id; scripted for a rule-based agent, if the kind of task has one (html); attack:NAME
    for one that tries to make the human give the reference away (code; docs/rollouts.md lists them)."""
    agent_url: list[str] = Field(default_factory=list, json_schema_extra=about("Agent", MAIN, OPERATIONAL))
    """OpenAI-compatible server of the agent; may be given several times. Without it the agent runs in this process."""
    sim: OneOrMore = Field(default="scripted", json_schema_extra=about("Simulated human", MAIN))
    """The simulated human: scripted (tasks with facts, html tasks), or a model that sees the reference (html: a vision
    model). May be given several times: the tasks are spread over these humans."""
    sim_url: list[str] = Field(default_factory=list, json_schema_extra=about("Simulated human", MAIN, OPERATIONAL))
    """OpenAI-compatible server of the simulated human; may be given several times. Of several humans each is asked at
    the servers that serve its model."""
    human: HumanSees = Field(default="code", json_schema_extra=about("Simulated human"))
    """What a model that plays the human knows the task by: code, its hidden information or reference, or spec, its
    specification in plain words (sweet data describe), so that it has no code to leak. Critics and scores keep the
    code."""
    human_tries: int = Field(default=TRIES, ge=1, json_schema_extra=about("Simulated human"))
    """Replies that a model that plays the human is asked for at each turn: one that leaks the solution is withheld, and
    the model is asked again, with the reason. The dialogue ends if all of them leak; 1 ends it at the first leak.
    Recipe upstream never asks again."""
    persona: list[str] = Field(default=[], json_schema_extra=about("Simulated human", MAIN))
    """How the human speaks: plain, terse, talkative, unsure, slips (wrong now and then, and corrects itself), german,
    spanish, chinese, or one of --persona-file. Several make a human of each, for each --sim. The scripted human plays
    the first five."""
    persona_file: Path | None = Field(default=None, json_schema_extra=about("Simulated human"))
    """TOML file of personas, each a line name = "text" that is added to the human's prompt. Without --persona it is all
    of them."""
    spread: Literal["tasks", "samples"] = Field(default="tasks", json_schema_extra=about("Simulated human"))
    """How dialogues are spread over several humans: tasks, all dialogues of a task with one human, as preferences need;
    samples, the dialogues of a task with one human after the other, to compare the humans on the same tasks."""
    num_tasks: int | None = Field(default=None, ge=1, json_schema_extra=about("Data", MAIN))
    """Play only the first N tasks."""
    draw_tasks: bool = Field(default=False, json_schema_extra=about("Data"))
    """Play N random tasks, drawn by the seed, instead of the first N."""
    skip_invalid: bool = Field(default=False, json_schema_extra=about("Data"))
    """Leave out tasks that cannot be scored, such as one whose reference does not compile, instead of refusing them
    all; sweet data check lists them."""
    samples: int = Field(default=1, ge=1, json_schema_extra=about("Data", MAIN))
    """Dialogues for each task."""
    max_turns: int = Field(default=MAX_TURNS, ge=1, json_schema_extra=about("Dialogue"))
    """Maximum number of the agent's turns."""
    temperature: float = Field(default=1.0, ge=0, json_schema_extra=about("Agent"))
    """Sampling temperature of the agent; 0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1, json_schema_extra=about("Agent"))
    """Nucleus sampling (top-p) of the agent."""
    max_tokens: int = Field(default=1024, ge=1, json_schema_extra=about("Agent"))
    """Maximum number of tokens of a reply; the agent's thoughts count too, except with --max-thought-tokens."""
    max_thought_tokens: int | None = Field(default=None, ge=1, json_schema_extra=about("Agent"))
    """Tokens after which a thought of the agent is ended, so that it replies; they are allowed in addition to
    --max-tokens. The embedded engine ends it itself; a server is asked to and may ignore it."""
    effort: Effort | None = Field(default=None, json_schema_extra=about("Agent"))
    """How much an agent that can think is asked to: none, low, medium or high; default: as the model does."""
    thoughts: Thoughts = Field(default="drop", json_schema_extra=about("Agent"))
    """Whether the agent reads its thoughts of earlier turns: drop them from the history, or keep them. The human never
    sees them."""
    seed: int = Field(default=0, ge=0, json_schema_extra=about("Data"))
    """Seed of the whole rollout; with task and sample it names a dialogue."""
    prompts: Path | None = Field(default=None, json_schema_extra=about("Dialogue"))
    """Folder with agent.txt, human.txt, human_spec.txt (for --human spec) or some of them, instead of the packaged
    prompts."""
    recipe: Recipe = Field(default="paper", json_schema_extra=about("Dialogue"))
    """paper, or upstream to follow the published code where the two differ."""
    window: Window | None = Field(default=None, json_schema_extra=about("Pages"))
    """Pages: size of the browser's window, WIDTHxHEIGHT; default: 1280x720, with recipe upstream the published code's
    1366x682."""
    pictures: PictureRule | None = Field(default=None, json_schema_extra=about("Pages"))
    """Pages: what is shown for images of picsum.photos: placeholder (gradients), or photo, the one that the published
    code shows (sweet data assets --photo). Default: placeholder, with recipe upstream photo if it is downloaded."""
    token_limit: int | None = Field(default=None, ge=1, json_schema_extra=about("Dialogue"))
    """Tokens of a dialogue, prompts and all candidates included, at which it ends with the answer so far; default: no
    limit."""
    best_of: int | None = Field(default=None, ge=1, json_schema_extra=about("Best of N"))
    """Sample N replies at each turn of the agent; the judge chooses the one that the dialogue goes on with. 1 is the
    ordinary rollout, without a judge."""
    judge: JudgeName | None = Field(default=None, json_schema_extra=about("Best of N"))
    """What chooses with --best-of: a critic of the run (default), a language model that scores each reply
    (--judge-model), or a control. oracle: the credit that the tasks themselves know. random: chance. untrained: the
    model that critics start from. All but random and critics of the variant no-info see the training-time
    information."""
    critic: str | None = Field(default=None, json_schema_extra=about("Best of N"))
    """The critic that chooses; default: the newest finished one."""
    judge_model: str | None = Field(default=None, json_schema_extra=about("Best of N"))
    """The model that chooses with --judge llm: a directory or a hub id."""
    judge_url: list[str] = Field(default_factory=list, json_schema_extra=about("Best of N", OPERATIONAL))
    """OpenAI-compatible server of that model; may be given several times. Without one it runs on this machine."""
    judge_prompt: Path | None = Field(default=None, json_schema_extra=about("Best of N"))
    """File with the judge's prompt, instead of the packaged one; without {reference} in it the judge does not see the
    training-time information."""
    judge_tokens: int = Field(default=512, ge=1, json_schema_extra=about("Best of N"))
    """Tokens of the judge's answer at most; a model that reasons first needs more."""
    reference: str | None = Field(default=None, json_schema_extra=about("Best of N"))
    """The frozen model that the critic is measured against; default: its starting model. For --judge untrained the
    model that judges; default: the agent."""
    reference_context: ReferenceContext | None = Field(default=None, json_schema_extra=about("Best of N"))
    """What the critic's reference reads before a reply: hidden, as the critic does, or dialogue; see sweet rank."""
    turn_tokens: TurnTokens | None = Field(default=None, json_schema_extra=about("Best of N"))
    """Of a thinking agent's replies, the tokens that the mean of a critic's log-ratios runs over: both (thought and
    reply together), reply, or separate (the mean of both means). Default: what the critic was trained with."""
    max_length: int | None = Field(default=None, ge=8, json_schema_extra=about("Best of N"))
    """Tokens of a sequence that a critic or untrained judges at most; longer ones lose early turns. Default: its
    context."""
    ray: str | None = Field(default=None, json_schema_extra=about("Machine", OPERATIONAL))
    """Use the nodes of a Ray cluster, auto (that of this machine), HOST:PORT, or local to start one here: to render the
    pages that the human sees, or, on tasks without pages, to run the critic of --best-of (all nodes must see the run's
    folder)."""
    concurrency: int = Field(default=128, ge=1, json_schema_extra=about("Machine", MAIN, OPERATIONAL))
    """Maximum number of dialogues at once. sweet control RUN concurrency N sets it meanwhile, and so does a number in
    RUN/concurrency; SIGUSR1 doubles it, SIGUSR2 halves it."""
    deadline: float = Field(default=600.0, gt=0, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Seconds after which a dialogue fails; time for rendering pages, and waiting for the judge of --best-of, does not
    count."""
    retry_timeout: float = Field(default=60.0, ge=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds to keep trying a server that cannot be reached."""
    request_timeout: float = Field(default=600.0, gt=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds for one request to a server, until all of its answer has come."""
    follow_redirects: bool = Field(default=False, json_schema_extra=about("Servers", OPERATIONAL))
    """Follow a server's redirects to other hosts too, which then get the dialogues, but not the API key."""
    fail_on_error: float = Field(default=0.1, ge=0, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Number of failed dialogues that is tolerated: a share below 1, or a count."""
    new: bool = Field(default=False, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Start new rollouts even if unfinished ones with other settings exist."""
    device: Device = Field(default="auto", json_schema_extra=about("Machine", OPERATIONAL))
    """Where the embedded engine runs."""
    engine: EngineChoice = Field(default="auto", json_schema_extra=about("Servers", OPERATIONAL))
    """Engine of a model without an address: auto (vllm if it is installed and suits the machine), vllm, or embedded. A
    vllm is started and stopped by this command. The agent micro is always embedded."""
    startup_timeout: float = Field(default=STARTUP_TIMEOUT, gt=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds to wait until a vllm that was started answers."""
    vllm_options: list[str] = Field(default_factory=list, json_schema_extra=about("Servers", BEHIND_DASHES))
    """Arguments after -- are passed unchanged to the vllm that is started (in a configuration file: vllm-options)."""

    @property
    def sims(self) -> list[str]:
        """The models that play the human, `scripted` among them."""
        return [self.sim] if isinstance(self.sim, str) else self.sim

    @model_validator(mode="before")
    @classmethod
    def _one_candidate_is_ordinary(cls, settings: Any) -> Any:
        """Leave out the options of the judge where the best of one is chosen, so that the ordinary rollout is known."""
        if not isinstance(settings, Mapping) or settings.get("best_of") not in (1, "1"):
            return settings
        choosing = {"best_of", "judge", "judge_tokens", *CHOOSERS_OF_OPTION}
        return {name: value for name, value in settings.items() if name not in choosing}
