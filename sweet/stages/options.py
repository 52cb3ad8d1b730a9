"""The options that several commands share, in groups, each declared once.

The configuration of a command names the groups that it has as its bases, and declares what is its own. A help text is
true for every command that has the option. Groups of the trainings alone are in `sweet.training.config`, those of the
judges in `sweet.judges.options`, and the prices in `sweet.stages.prices`.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from sweet.device import Device
from sweet.humans.base import TRIES
from sweet.llm.base import STARTUP_TIMEOUT, Effort, EngineChoice
from sweet.render.window import PictureRule, Window
from sweet.sandbox.program import TierChoice
from sweet.stages.base import BEHIND_DASHES, OPERATIONAL, OneOrMore, Packing, Seed, StageConfig, about
from sweet.tasks.base import HumanSees, ProtocolName, TurnTokens
from sweet.tasks.markers import MAX_TURNS
from sweet.tasks.trajectory import Thoughts

FLIPS = 10
"""Default number of flipped tasks to list in each direction."""


class SeedConfig(StageConfig):
    seed: Seed = Field(default=0, json_schema_extra=about("Data"))
    """Seed of every random choice: the order of tasks and examples, sampling, and training. With task and sample it
    names a dialogue."""


class ProtocolConfig(StageConfig):
    protocol: ProtocolName = Field(default="paper", json_schema_extra=about("Method"))
    """paper, or upstream to follow the published code where the two differ."""


class TaskConfig(StageConfig):
    task: str = Field(default="code", json_schema_extra=about("Data"))
    """Kind of task: code, desk, html, orders, tau2:DOMAIN, verifiers:NAME, or one of a package (see sweet doctor)."""


class TasksConfig(TaskConfig):
    tasks: str | None = Field(default=None, json_schema_extra=about("Data"))
    """Dataset by name (code: micro, micro-long, micro-parts, colbench; desk: desk; html: pages, websight; orders:
    orders, orders-long) or a JSONL file; default: what agent and human can play: the packaged agent's own, with another
    one ColBench, if it is downloaded and a model plays the human, or WebSight if it is downloaded, else the first of
    the kind."""


class HoldoutConfig(TasksConfig):
    holdout: float | None = Field(default=None, gt=0, lt=1, json_schema_extra=about("Data"))
    """With a file: share of its tasks that are the split test, by a hash of the problem, so that a task keeps its split
    when rows are added. Give the same share to each command; sweet train has 0.2 if the rows name no split."""
    holdout_validation: float | None = Field(default=None, gt=0, lt=1, json_schema_extra=about("Data"))
    """With a file: share of its tasks that are the split validation, in the same way; sweet train has 0.1."""


class AllowTestConfig(StageConfig):
    allow_test: bool = Field(default=False, json_schema_extra=about("Data"))
    """Also accept what was made from dialogues on test tasks; a model that learns from it cannot be measured on these
    tasks."""


class SimUrlConfig(StageConfig):
    sim_url: list[str] = Field(default_factory=list, json_schema_extra=about("Simulated human", OPERATIONAL))
    """OpenAI-compatible server of the simulated human; may be given several times. Without one its model runs on this
    machine. Of several humans each is asked at the servers that serve its model."""


class SimConfig(StageConfig):
    sim: OneOrMore = Field(default="scripted", json_schema_extra=about("Simulated human"))
    """The simulated human: scripted (tasks with facts, html tasks), or a model that sees the reference (html: a vision
    model). May be given several times: the tasks are spread over these humans."""

    @property
    def sims(self) -> list[str]:
        """The models that play the human, `scripted` among them."""
        return [self.sim] if isinstance(self.sim, str) else self.sim


class AgentUrlConfig(StageConfig):
    agent_url: list[str] = Field(default_factory=list, json_schema_extra=about("Agent", OPERATIONAL))
    """OpenAI-compatible server of the agent; may be given several times. Without it the model runs on this machine.
    train-online needs a vLLM that was started with VLLM_SERVER_DEV_MODE=1 and sees the run's folder."""


class AgentConfig(StageConfig):
    agent: str = Field(default="micro", json_schema_extra=about("Agent"))
    """The agent's model, from which a training starts: micro, micro-parts (for the dataset of this name), an actor of
    the run by its id (actor-1), a directory or a hub id. Where nothing is trained also scripted, a rule-based agent, if
    the kind of task has one (html)."""


class HarnessConfig(StageConfig):
    harness: str | None = Field(default=None, json_schema_extra=about("Agent"))
    """A program of yours as the agent, such as "python my_agent.py": it is started for each dialogue, asks the model by
    OPENAI_BASE_URL and OPENAI_API_KEY, and finds its task in SWEET_TASK. Its last line of output is the answer
    (docs/gateway.md). A training plays every dialogue with it, also those that evaluate."""
    harness_jail: bool = Field(default=False, json_schema_extra=about("Agent"))
    """Start the program in a jail (bubblewrap), in which it reads its own folder and reaches nothing but the model."""


class ListenConfig(StageConfig):
    host: str = Field(default="127.0.0.1", json_schema_extra=about("Servers", OPERATIONAL))
    """Address to listen on. serve-sim requires no key, so an address that others can reach is for trusted networks.
    Requests must name the machine by an IP address, its own name, or names that follow after commas: 0.0.0.0,NAME."""
    port: int = Field(default=8000, ge=0, le=65535, json_schema_extra=about("Servers", OPERATIONAL))
    """Port to listen on; 0 chooses a free one."""


class SamplingConfig(StageConfig):
    max_tokens: int = Field(default=1024, ge=1, json_schema_extra=about("Agent"))
    """Maximum number of tokens of a reply; the agent's thoughts count too, except with --max-thought-tokens."""
    max_thought_tokens: int | None = Field(default=None, ge=1, json_schema_extra=about("Agent"))
    """Tokens after which a thought of the agent is ended, so that it replies; they are allowed in addition to
    --max-tokens. The embedded engine ends it itself; a server is asked to and may ignore it. Default: no limit; of
    sweet rank as in the dialogues."""
    effort: Effort | None = Field(default=None, json_schema_extra=about("Agent"))
    """How much an agent that can think is asked to: none, low, medium or high; default: as the model does, of sweet
    rank as in the dialogues."""


class PagesConfig(StageConfig):
    window: Window | None = Field(default=None, json_schema_extra=about("Pages"))
    """Pages: size of the browser's window, WIDTHxHEIGHT; default: 1280x720, with protocol upstream the published code's
    1366x682; of sweet eval that of the rollouts. Scores at different windows are not compared."""
    pictures: PictureRule | None = Field(default=None, json_schema_extra=about("Pages"))
    """Pages: what is shown for images of picsum.photos: placeholder (gradients), or photo, the one that the published
    code shows (sweet data assets --photo). Default: placeholder, with protocol upstream photo if it is downloaded; of
    sweet eval as in the rollouts. Scores by different rules are not compared."""


class HumanConfig(StageConfig):
    """How the simulated human plays."""

    persona: list[str] = Field(default_factory=list, json_schema_extra=about("Simulated human"))
    """How the human speaks: plain, terse, talkative, unsure, slips (wrong now and then, and corrects itself), german,
    spanish, chinese, or one of --persona-file. Several make a human of each, for each --sim. The scripted human plays
    plain, terse and unsure."""
    persona_file: Path | None = Field(default=None, json_schema_extra=about("Simulated human"))
    """TOML file of personas, each a line name = "text" that is added to the human's prompt. Without --persona it is all
    of them."""
    sim_effort: Effort | None = Field(default=None, json_schema_extra=about("Simulated human"))
    """How much a model that plays the human and can think is asked to: none, low, medium or high; default: as the model
    does."""
    human: HumanSees = Field(default="code", json_schema_extra=about("Simulated human"))
    """What a model that plays the human knows the task by: code, its hidden information or reference, or spec, its
    specification in plain words (sweet data describe), so that it has no code to leak. Critics and scores keep the
    code."""
    human_tries: int = Field(default=TRIES, ge=1, json_schema_extra=about("Simulated human"))
    """Replies that a model that plays the human is asked for at each turn: one that leaks the solution, says nothing,
    repeats the agent, its instructions or itself, or speaks as the agent is withheld, and the model is asked again,
    with the reason. The dialogue ends if all are such; 1 ends it at the first. Protocol upstream never asks again."""
    sim_max_tokens: int | None = Field(default=None, ge=1, json_schema_extra=about("Simulated human"))
    """Maximum number of tokens of a reply of a model that plays the human; default: 256, of one that sees pages 400. A
    reply is cut to 400 characters (pages: 1000) in any case."""


class OpenDialogueConfig(
    HumanConfig,
    PagesConfig,
    SamplingConfig,
    SimUrlConfig,
    SimConfig,
    AgentUrlConfig,
    SeedConfig,
    HoldoutConfig,
):
    """How dialogues are played, whoever the agent is."""

    num_tasks: int | None = Field(default=None, ge=1, json_schema_extra=about("Data"))
    """Play only the first N tasks."""
    skip_invalid: bool = Field(default=False, json_schema_extra=about("Data"))
    """Leave out tasks that cannot be scored, such as one whose reference does not compile, instead of refusing them
    all; sweet data check lists them."""
    max_turns: int = Field(default=MAX_TURNS, ge=1, json_schema_extra=about("Dialogue"))
    """Maximum number of the agent's turns."""
    prompts: Path | None = Field(default=None, json_schema_extra=about("Dialogue"))
    """Folder with agent.txt, human.txt, human_spec.txt (for --human spec) or some of them, or packaged. Default: the
    packaged prompts, with the system prompt of an actor that learned under another one (prompts-KIND in its folder)."""
    thoughts: Thoughts = Field(default="drop", json_schema_extra=about("Agent"))
    """Whether the agent reads its thoughts of earlier turns: drop them from the history, or keep them. The human never
    sees them."""


class DialogueConfig(OpenDialogueConfig, AgentConfig):
    """How dialogues with an agent of this program are played."""


class TurnTokensConfig(StageConfig):
    turn_tokens: TurnTokens | None = Field(default=None, json_schema_extra=about("Method"))
    """The tokens of a thinking agent's turns that are supervised, and that a critic judges by: both (thought and reply
    together), reply (the thought is only read), or separate (the mean of both means). Default: both for an actor,
    separate for a critic; for a judge what the critic was trained with."""


class SequenceConfig(TurnTokensConfig):
    max_length: int | None = Field(default=None, ge=8, json_schema_extra=about("Method"))
    """Tokens of a sequence that is trained on or judged at most; longer dialogues lose early turns. Default: the
    model's context."""


class PackingConfig(StageConfig):
    """How the sequences of a forward pass are computed."""

    micro_batch_tokens: int | None = Field(default=None, ge=1, json_schema_extra=about("Machine", OPERATIONAL))
    """Tokens of one forward pass; default: 16384 on a GPU, on a CPU 256 to 2048 (the larger the model, the fewer), of
    sweet rank 8192. Does not change the size of a step."""
    packing: Packing = Field(default="tree", json_schema_extra=about("Machine", OPERATIONAL))
    """tree: shared prefixes of sequences are computed once. plain: each sequence separately, as a check."""


class CriticConfig(StageConfig):
    critic: str | None = Field(default=None, json_schema_extra=about("Method"))
    """The critic of the run that chooses (--best-of), or that a credit rule asks for advantages (sweet-pg); default:
    the newest finished one."""


class RetrainConfig(StageConfig):
    retrain_critic: bool = Field(default=True, json_schema_extra=about("Method"))
    """Train a critic in each round, on the dialogues of all rounds; otherwise that of the first judges, which overrates
    what later actors learn to say."""


class RequestConfig(StageConfig):
    retry_timeout: float = Field(default=60.0, ge=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds to keep trying a server that cannot be reached."""
    request_timeout: float = Field(default=600.0, gt=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds in which a server answers no request; one that it makes wait behind others may take longer."""
    thought_marks: str | None = Field(default=None, json_schema_extra=about("Servers"))
    """The two marks around the thoughts of models, such as "<a> </a>", beside those that are known."""


class DeviceConfig(StageConfig):
    device: Device = Field(default="auto", json_schema_extra=about("Machine", OPERATIONAL))
    """Where the models that are not served run, and are trained."""


class LocalModelsConfig(DeviceConfig, RequestConfig):
    """How models are run that have an address or none."""

    local_engine: EngineChoice = Field(default="auto", json_schema_extra=about("Servers", OPERATIONAL))
    """Engine of a model without an address: auto (vllm if it is installed and suits the machine), vllm, embedded, or
    tinker, a service that also trains what learns online (docs/tinker.md). A vllm is started and stopped by this
    command. The agent micro is always embedded."""
    startup_timeout: float = Field(default=STARTUP_TIMEOUT, gt=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds to wait until a vllm that was started answers; while it downloads its model they do not run."""
    vllm_options: list[str] = Field(default_factory=list, json_schema_extra=about("Servers", BEHIND_DASHES))
    """Arguments after -- are passed unchanged to the vllm that is started (in a configuration file: vllm-options)."""


class ConcurrencyConfig(StageConfig):
    concurrency: int = Field(default=128, ge=1, json_schema_extra=about("Machine", OPERATIONAL))
    """Maximum number of dialogues (of sweet rank turns) at once."""
    fail_on_error: float = Field(default=0.1, ge=0, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Number of failed dialogues (of sweet rank turns, of train-online of one step) that is tolerated: a share below 1,
    or a count."""


class DeadlineConfig(StageConfig):
    deadline: float = Field(default=600.0, gt=0, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Seconds after which a dialogue fails in which no reply comes; waiting for pages, models of this process, the
    judge of --best-of and a server that answers others does not count."""


class SandboxConfig(StageConfig):
    sandbox: TierChoice = Field(default="auto", json_schema_extra=about("Machine", OPERATIONAL))
    """Sandbox tier for answers and references; auto selects the strongest that works on this machine, unsafe has no
    jail."""


class WorkersConfig(SandboxConfig):
    workers: int | None = Field(default=None, ge=1, json_schema_extra=about("Machine", OPERATIONAL))
    """Answers or references to run in parallel, or browsers for pages; default: by the machine's size. With --ray, on
    each node."""


class ComparisonConfig(StageConfig):
    flips: int = Field(default=FLIPS, ge=0, json_schema_extra=about("Comparison", OPERATIONAL))
    """Flipped tasks to list in each direction."""
    allow_different: bool = Field(default=False, json_schema_extra=about("Comparison", OPERATIONAL))
    """Compare rewards by different scorers, or of different kinds of task; a warning says so."""


class ScoringConfig(PagesConfig, WorkersConfig):
    """How what the agents delivered is scored."""

    similarity: str | None = Field(default=None, json_schema_extra=about("Pages"))
    """Pages: the model that compares screenshots: clip, a directory or hub id of a CLIP or SigLIP model, or the
    stand-in pixels. Default: clip if its weights are on this machine, otherwise pixels."""


class RayConfig(StageConfig):
    ray: str | None = Field(default=None, json_schema_extra=about("Machine", OPERATIONAL))
    """Use the nodes of a Ray cluster: auto (the cluster of this machine) or HOST:PORT. rollout: for the critic of
    --best-of. rank: for the critic, a replica on each GPU. eval: to score code. For critics all nodes must see the
    run's folder."""


class DownloadConfig(StageConfig):
    force: bool = False
    """Fetch again what is there already."""


class HubConfig(DownloadConfig):
    revision: str = "main"
    """Revision of the dataset on the hub."""
