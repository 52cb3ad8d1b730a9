"""The options of `sweet rank`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sweet.errors import UsageError
from sweet.hints import option
from sweet.judges.base import ScoreReplies
from sweet.judges.options import (
    CRITIC_JUDGES,
    JUDGES_OF_OPTION,
    LOOKAHEAD,
    RUN_CRITICS,
    JudgeName,
    ReplyJudgeConfig,
    check_judge_options,
)
from sweet.stages.base import PlannedConfig, about, with_function
from sweet.stages.options import (
    AgentUrlConfig,
    AllowTestConfig,
    LocalModelsConfig,
    PackingConfig,
    RayConfig,
    SamplingConfig,
    SandboxConfig,
    SimUrlConfig,
)
from sweet.stages.prices import PricedConfig
from sweet.tasks.base import ProtocolName


class RankConfig(
    PlannedConfig,
    PricedConfig,
    RayConfig,
    LocalModelsConfig,
    PackingConfig,
    SamplingConfig,
    SimUrlConfig,
    AgentUrlConfig,
    SandboxConfig,
    ReplyJudgeConfig,
    AllowTestConfig,
):
    main_options = (
        *("judge", "from_", "rollouts", "candidates", "fraction", "limit"),
        *("agent", "agent_url", "concurrency", "device", "resume"),
    )

    judge: JudgeName = Field(default="critic", json_schema_extra=about("Judge"))
    """The judge of the candidates: the critic, a value function (value: a critic that was trained on outcomes), a
    language model that scores each reply (--judge-model), lookahead, or a control. lookahead: how much likelier the
    human's next reply makes the solution, and the reward of answers; it needs no critic. oracle: the credit that the
    tasks themselves know. random: a random number. untrained: the model that the critic starts from, by how much
    likelier the training-time information makes the reply."""
    sim: str | None = Field(default=None, json_schema_extra=about("Judge"))
    """With --judge lookahead: the simulated human that is asked, scripted or a model; default: the dialogues' own."""
    from_: str | None = Field(default=None, json_schema_extra=about("Judge"))
    """The critic to rank by; default: the newest finished one."""
    rollouts: str | None = Field(default=None, json_schema_extra=about("Data"))
    """Dialogues whose turns are ranked; default: the newest ones on the split of the critic's own tasks, for another
    judge the newest ones of the split train."""
    replies: str | None = Field(default=None, json_schema_extra=about("Data"))
    """Candidates of an earlier ranking: their replies are judged again, and nothing is sampled."""
    candidates: int = Field(default=16, ge=2, json_schema_extra=about("Agent"))
    """Replies sampled at each turn."""
    fraction: float = Field(default=0.1, gt=0, le=1, json_schema_extra=about("Data"))
    """Share of the turns, drawn by the seed; with protocol upstream all turns of the first dialogues, this share of
    them."""
    limit: int | None = Field(default=None, ge=1, json_schema_extra=about("Data"))
    """Rank at most this many turns."""
    dialogues: Literal["all", "best"] = Field(default="all", json_schema_extra=about("Data"))
    """all: draw the turns from all dialogues. best: from that with the highest reward of each task, so that replies are
    compared where a better agent comes to; it needs the scores, and --fraction stays a share of the turns of all."""
    agent: str | None = Field(default=None, json_schema_extra=about("Agent"))
    """The model that replies: micro, a directory or a hub id; default: the agent of the rollouts."""
    temperature: float = Field(default=1.0, gt=0, json_schema_extra=about("Agent"))
    """Sampling temperature."""
    protocol: ProtocolName | None = Field(default=None, json_schema_extra=about("Judge"))
    """paper or upstream, see sweet.learn.critic; default: the critic's own protocol."""


_JUDGES_OF_OPTION = {
    **JUDGES_OF_OPTION,
    **dict.fromkeys(("reference", "max_length"), (*CRITIC_JUDGES, LOOKAHEAD)),
    **dict.fromkeys(("sim", "sim_url"), (LOOKAHEAD,)),
    "from_": RUN_CRITICS,
    "protocol": ("critic",),
    "ray": CRITIC_JUDGES,
}
"""Options that only some judges accept, with those judges."""

SAMPLING_OPTIONS = (
    *("rollouts", "candidates", "fraction", "limit", "dialogues", "agent", "agent_url", "temperature", "max_tokens"),
    *("max_thought_tokens", "effort"),
)
"""Options of the sampling, which is not done where the replies are given."""


def check_options(config: RankConfig) -> None:
    """Raise UsageError where an option belongs to another judge, or to a sampling that is not done."""
    option_values = {name: getattr(config, name) for name in _JUDGES_OF_OPTION}
    check_judge_options(config.judge, option_values, _JUDGES_OF_OPTION)
    sampling = [option(name) for name in SAMPLING_OPTIONS if name in config.model_fields_set]
    if config.replies is not None and sampling:
        raise UsageError(
            (f"{sampling[0]} is an option of the sampling, and the replies of {config.replies} are sampled already."),
            where=sampling[0],
            fix=f"omit {sampling[0]} or --replies",
        )


class FunctionRankConfig(RankConfig):
    """The configuration of a ranking by a Python function (`sweet.rank(run, config, judge=function)`), as the run
    records it. An interrupted ranking is resumed only by the same function."""

    judge: str  # type: ignore[assignment]
    """Name of the function (`sweet.stages.base.function_name`)."""


def config_for(function: ScoreReplies, config: RankConfig) -> FunctionRankConfig:
    """Return the configuration with the function as its judge.

    Raises:
        UsageError: the configuration names another judge.
    """
    return with_function(function, config, FunctionRankConfig, "judge")
