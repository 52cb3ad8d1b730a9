"""The options of `sweet rank`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from sweet.device import Device
from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.judges.options import CRITIC_JUDGES, JUDGES_OF_OPTION, LOOKAHEAD, RankJudgeName, check_judge_options
from sweet.llm.base import Effort
from sweet.llm.local import STARTUP_TIMEOUT, EngineChoice
from sweet.sandbox.tiers import TierChoice
from sweet.stages.base import (
    BEHIND_DASHES,
    MAIN,
    OPERATIONAL,
    Packing,
    PlannedConfig,
    about,
)
from sweet.stages.prices import PricedConfig
from sweet.tasks.base import Recipe, ReferenceContext, TurnTokens


class RankConfig(PlannedConfig, PricedConfig):
    judge: RankJudgeName = Field(default="critic", json_schema_extra=about("Judge", MAIN))
    """The judge of the candidates: the critic, a language model that scores each reply (--judge-model), lookahead, or a
    control. lookahead: how much likelier the human's next reply makes the solution, and the reward of answers; it needs
    no critic. oracle: the credit that the tasks themselves know. random: a random number. untrained: the model that the
    critic starts from, by how much likelier the training-time information makes the reply."""
    sim: str | None = Field(default=None, json_schema_extra=about("Judge"))
    """With --judge lookahead: the simulated human that is asked, scripted or a model; default: the dialogues' own."""
    sim_url: list[str] = Field(default_factory=list, json_schema_extra=about("Judge", OPERATIONAL))
    """OpenAI-compatible server of that human; may be given several times. Without one it runs on this machine."""
    sandbox: TierChoice = Field(default="auto", json_schema_extra=about("Judge", OPERATIONAL))
    """With --judge lookahead: the jail in which answers run, as for sweet eval."""
    judge_model: str | None = Field(default=None, json_schema_extra=about("Judge"))
    """The model that judges with --judge llm: a directory or a hub id."""
    judge_url: list[str] = Field(default_factory=list, json_schema_extra=about("Judge", OPERATIONAL))
    """OpenAI-compatible server of that model; may be given several times. Without one it runs on this machine."""
    judge_prompt: Path | None = Field(default=None, json_schema_extra=about("Judge"))
    """File with the judge's prompt, instead of the packaged one; without {reference} in it the judge does not see the
    training-time information."""
    judge_tokens: int = Field(default=512, ge=1, json_schema_extra=about("Judge"))
    """Tokens of the judge's answer at most; a model that reasons first needs more."""
    from_: str | None = Field(default=None, json_schema_extra=about("Judge", MAIN))
    """The critic to rank by; default: the newest finished one."""
    rollouts: str | None = Field(default=None, json_schema_extra=about("Data", MAIN))
    """Dialogues whose turns are ranked; default: the newest ones on the split of the critic's own tasks, for another
    judge the newest ones of the split train."""
    replies: str | None = Field(default=None, json_schema_extra=about("Data"))
    """Candidates of an earlier ranking: their replies are judged again, and nothing is sampled."""
    allow_test: bool = Field(default=False, json_schema_extra=about("Data"))
    """Also accept dialogues on test tasks, and a critic that learned from them; an actor that learns from their turns
    cannot be measured on these tasks."""
    candidates: int = Field(default=16, ge=2, json_schema_extra=about("Agent", MAIN))
    """Replies sampled at each turn."""
    fraction: float = Field(default=0.1, gt=0, le=1, json_schema_extra=about("Data", MAIN))
    """Share of the turns, drawn by the seed; with recipe upstream all turns of the first dialogues, this share of
    them."""
    limit: int | None = Field(default=None, ge=1, json_schema_extra=about("Data", MAIN))
    """Rank at most this many turns."""
    agent: str | None = Field(default=None, json_schema_extra=about("Agent", MAIN))
    """The model that replies: micro, a directory or a hub id; default: the agent of the rollouts."""
    agent_url: list[str] = Field(default_factory=list, json_schema_extra=about("Agent", MAIN, OPERATIONAL))
    """OpenAI-compatible server of the agent; may be given several times. Without one it runs in this process."""
    reference: str | None = Field(default=None, json_schema_extra=about("Judge"))
    """The frozen model that the advantage is measured against; default: the critic's starting model. For --judge
    untrained and lookahead the model that judges; default: the agent of the dialogues."""
    reference_context: ReferenceContext | None = Field(default=None, json_schema_extra=about("Judge"))
    """What the reference reads before a reply. hidden: the training-time information and the dialogue, as the critic
    does. dialogue: the dialogue alone, so that replies which agree with the solution gain even where the critic has
    learned nothing. Default: hidden with the recipe paper, dialogue with upstream."""
    turn_tokens: TurnTokens | None = Field(default=None, json_schema_extra=about("Judge"))
    """Of a thinking agent's replies, the tokens that the mean of a critic's log-ratios runs over: both (thought and
    reply together), reply, or separate (the mean of both means). Default: what the critic was trained with."""
    temperature: float = Field(default=1.0, gt=0, json_schema_extra=about("Agent"))
    """Sampling temperature."""
    max_tokens: int = Field(default=1024, ge=1, json_schema_extra=about("Agent"))
    """Tokens of one reply at most; the agent's thoughts count too, except with --max-thought-tokens."""
    max_thought_tokens: int | None = Field(default=None, ge=1, json_schema_extra=about("Agent"))
    """Tokens after which a thought is ended, in addition to --max-tokens; default: as in the dialogues."""
    effort: Effort | None = Field(default=None, json_schema_extra=about("Agent"))
    """How much an agent that can think is asked to; default: as in the dialogues."""
    max_length: int | None = Field(default=None, ge=8, json_schema_extra=about("Judge"))
    """Tokens of a scored sequence at most; longer ones lose early turns. Default: the critic's context."""
    recipe: Recipe | None = Field(default=None, json_schema_extra=about("Judge"))
    """paper or upstream, see sweet.learn.critic; default: the critic's own recipe."""
    seed: int = Field(default=0, ge=0, json_schema_extra=about("Data"))
    """Seed of the sample of turns and of the replies."""
    concurrency: int = Field(default=64, ge=1, json_schema_extra=about("Machine", MAIN, OPERATIONAL))
    """Turns that are sampled at the same time."""
    micro_batch_tokens: int | None = Field(default=None, ge=1, json_schema_extra=about("Machine", OPERATIONAL))
    """Tokens of one forward pass of the critic; 8192 on a CPU, 16384 on a GPU."""
    packing: Packing = Field(default="tree", json_schema_extra=about("Machine", OPERATIONAL))
    """tree: shared prefixes of a dialogue's replies are computed once. plain: each reply separately, as a check."""
    retry_timeout: float = Field(default=20.0, ge=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds to keep trying a server that cannot be reached."""
    request_timeout: float = Field(default=600.0, gt=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds for one request to a server, until all of its answer has come."""
    follow_redirects: bool = Field(default=False, json_schema_extra=about("Servers", OPERATIONAL))
    """Follow a server's redirects to other hosts too, which then get the dialogues, but not the API key."""
    fail_on_error: float = Field(default=0.1, ge=0, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Failed turns that are not yet an error: a share if below 1, otherwise a count."""
    device: Device = Field(default="auto", json_schema_extra=about("Machine", MAIN, OPERATIONAL))
    """Where the critic and the embedded engine run."""
    ray: str | None = Field(default=None, json_schema_extra=about("Machine", OPERATIONAL))
    """Run the critic on the nodes of a Ray cluster, a replica on each GPU, or on each node of a cluster without GPUs:
    auto (the cluster of this machine), HOST:PORT, or local to start one here. All nodes must see the run's folder."""
    engine: EngineChoice = Field(default="auto", json_schema_extra=about("Servers", OPERATIONAL))
    """The engine of an agent without an address: vllm, started and stopped here, where it is installed and fits the
    machine (auto), always, or never (embedded). The agent micro is always embedded."""
    startup_timeout: float = Field(default=STARTUP_TIMEOUT, gt=0, json_schema_extra=about("Servers", OPERATIONAL))
    """Seconds to wait for a vllm that is started here."""
    vllm_options: list[str] = Field(default_factory=list, json_schema_extra=about("Servers", BEHIND_DASHES))
    """Options after -- are passed to the vllm that is started here (in a configuration file: vllm-options)."""


_JUDGES_OF_OPTION = {
    **JUDGES_OF_OPTION,
    **dict.fromkeys(("reference", "max_length"), (*CRITIC_JUDGES, LOOKAHEAD)),
    **dict.fromkeys(("sim", "sim_url"), (LOOKAHEAD,)),
    "from_": ("critic",),
    "recipe": ("critic",),
    "ray": CRITIC_JUDGES,
}
"""Options that only some judges accept, with those judges."""

_SAMPLING_OPTIONS = (
    *("rollouts", "candidates", "fraction", "limit", "agent", "agent_url", "temperature", "max_tokens"),
    *("max_thought_tokens", "effort"),
)
"""Options of the sampling, which is not done where the replies are given."""


def check_options(config: RankConfig) -> None:
    """Raise UsageError where an option belongs to another judge, or to a sampling that is not done."""
    given = {name: getattr(config, name) for name in _JUDGES_OF_OPTION}
    check_judge_options(config.judge, given, _JUDGES_OF_OPTION)
    sampling = [option(name) for name in _SAMPLING_OPTIONS if name in config.model_fields_set]
    if config.replies is not None and sampling:
        raise UsageError(
            Hint(
                sampling[0], f" is an option of the sampling, and the replies of {config.replies} are sampled already."
            ),
            where=sampling[0],
            fix=Hint("omit ", sampling[0], " or ", option("replies")),
        )
