"""The options of a judge, which the stages that use judges share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from sweet.errors import UsageError
from sweet.hints import option
from sweet.llm.base import Effort
from sweet.stages.base import OPERATIONAL, StageConfig, about
from sweet.stages.options import (
    ConcurrencyConfig,
    DeviceConfig,
    SeedConfig,
    SequenceConfig,
)
from sweet.tasks.base import ReferenceContext

JudgeName = Literal["critic", "llm", "oracle", "random", "untrained", "lookahead"]
"""The judges that an option can name. What comes next is not known while a dialogue is played, so that only a ranking
has the judge lookahead."""

LOOKAHEAD = "lookahead"
CRITIC_JUDGES = ("critic", "untrained")
"""The judges, by name, that are models which read each reply on this machine or on Ray's nodes."""

JUDGES_OF_OPTION: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("judge_model", "judge_url", "judge_prompt", "judge_effort"), ("llm",)),
    "reference_context": ("critic",),
    **dict.fromkeys(("reference", "max_length", "turn_tokens"), CRITIC_JUDGES),
}
"""The options that the stages share and only some judges accept, with those judges."""


class ReferenceContextConfig(StageConfig):
    reference_context: ReferenceContext | None = Field(default=None, json_schema_extra=about("Judge"))
    """What the critic's reference reads before a reply. hidden: the training-time information and the dialogue, as the
    critic does. dialogue: the dialogue alone, so that replies which agree with the solution gain even where the critic
    has learned nothing. Default: hidden with the protocol paper, dialogue with upstream."""


class ReplyJudgeConfig(ReferenceContextConfig, SequenceConfig, ConcurrencyConfig, DeviceConfig, SeedConfig):
    """The options of a judge that scores the replies to a turn."""

    judge_model: str | None = Field(default=None, json_schema_extra=about("Judge"))
    """The language model that judges: a directory or a hub id."""
    judge_url: list[str] = Field(default_factory=list, json_schema_extra=about("Judge", OPERATIONAL))
    """OpenAI-compatible server of that model; may be given several times. Without one it runs on this machine."""
    judge_prompt: Path | None = Field(default=None, json_schema_extra=about("Judge"))
    """File with the prompt of --judge-model, instead of the packaged one; without {reference} in it the judge does not
    see the training-time information."""
    judge_effort: Effort | None = Field(default=None, json_schema_extra=about("Judge"))
    """How much --judge-model is asked to think: none, low, medium or high; default: as the model does."""
    judge_tokens: int = Field(default=512, ge=1, json_schema_extra=about("Judge"))
    """Tokens of the answer of --judge-model at most; a model that reasons first needs more."""
    reference: str | None = Field(default=None, json_schema_extra=about("Judge"))
    """The frozen model that the critic is measured against; default: its starting model. For the judges untrained and
    lookahead the model that judges; default: the agent."""


def check_judge_options(judge: str, given: Mapping[str, object], judges_of_option: Mapping[str, Sequence[str]]) -> None:
    """Check that the options of a judge belong to it.

    Args:
        given: the values of the options, by field.
        judges_of_option: options that only some judges accept, with those judges.

    Raises:
        UsageError: an option belongs to another judge, or the language model that judges is missing.
    """
    if judge == "llm" and given.get("judge_model") is None:
        raise UsageError("The judge llm needs a model.", where="--judge llm", fix="--judge-model MODEL")
    for name, judges in judges_of_option.items():
        if judge not in judges and given.get(name) not in (None, []):
            named, other = option(name), option("judge", judges[0])
            raise UsageError(
                f"{named} is an option of {other}, and the judge is {judge}.",
                where=named,
                fix=f"omit {named}, or {other}",
            )
