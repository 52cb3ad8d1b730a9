"""The options of a judge, which the stages that use judges share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from sweet.errors import UsageError
from sweet.hints import option, stage
from sweet.llm.base import Effort
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import OPERATIONAL, StageConfig, about
from sweet.stages.meta import TrainedMeta
from sweet.stages.options import ConcurrencyConfig, DeviceConfig, SeedConfig, SequenceConfig
from sweet.tasks.base import ReferenceContext

JudgeName = Literal["critic", "value", "llm", "oracle", "random", "untrained", "lookahead"]
"""The judges that an option can name. What comes next is not known while a dialogue is played, so that only a ranking
has the judge lookahead."""

LOOKAHEAD = "lookahead"
RUN_CRITICS = ("critic", "value")
"""The judges, by name, that are critics of the run: any, or a value function, which is a regression head that was
trained on the outcomes of dialogues."""
VALUE_TARGETS = ("binary", "real")
"""What a value function has learned (`TrainedMeta.target`)."""
CRITIC_JUDGES = (*RUN_CRITICS, "untrained")
"""The judges, by name, that are models which read each reply on this machine or on Ray's nodes."""

JUDGES_OF_OPTION: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("judge_model", "judge_url", "judge_prompt", "judge_effort"), ("llm",)),
    "reference_context": ("critic",),
    **dict.fromkeys(("reference", "max_length", "turn_tokens"), CRITIC_JUDGES),
}
"""The options that the stages share and only some judges accept, with those judges."""


def find_critic(run: Run, judge: str, critic_id: str | None, *, needed_by: str) -> Artifact:
    """Return the critic of the run that judges.

    Args:
        judge: one of `RUN_CRITICS`.
        critic_id: its id; None for the newest finished one that the judge can be.

    Raises:
        UsageError: there is none, or it is no value function and the judge is one; further as `Run.find`.
    """
    if judge == "value" and critic_id is None:
        finished = run.manifest().of_kind("critic", "done")
        critic_id = next((a.id for a in reversed(finished) if TrainedMeta.of(a).target in VALUE_TARGETS), None)
    critic = run.find("critic", critic_id, needed_by=needed_by)
    if judge == "value" and TrainedMeta.of(critic).target not in VALUE_TARGETS:
        raise UsageError(
            f"{critic.id} was not trained on outcomes, so it is no value function.",
            where=option("judge", judge),
            fix=stage("train-critic", variant="regression", target="real"),
        )
    return critic


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
    """File with the prompt of --judge-model, instead of the packaged one. It asks for SCORE: and a digit from 1 to 9;
    the lines {dialogue}, {reply} and {reference} are filled in, the last only if the judge shall see the solution."""
    judge_effort: Effort | None = Field(default=None, json_schema_extra=about("Judge"))
    """How much --judge-model is asked to think: none, low, medium or high; default: as the model does."""
    judge_tokens: int = Field(default=512, ge=1, json_schema_extra=about("Judge"))
    """Tokens of the answer of --judge-model at most; a model that reasons first needs more."""
    reference: str | None = Field(default=None, json_schema_extra=about("Judge"))
    """The frozen model that the critic is measured against; default: its starting model. For the judges untrained and
    lookahead the model that judges; default: the agent."""


def check_judge_options(judge: str, values: Mapping[str, object], accepted_by: Mapping[str, Sequence[str]]) -> None:
    """Check that the options of a judge belong to it.

    Args:
        values: the values of the options, by field.
        accepted_by: options that only some judges accept, with those judges.

    Raises:
        UsageError: an option belongs to another judge, or the language model that judges is missing.
    """
    if judge == "llm" and values.get("judge_model") is None:
        raise UsageError("The judge llm needs a model.", where="--judge llm", fix="--judge-model MODEL")
    for name, judges in accepted_by.items():
        if judge not in judges and values.get(name) not in (None, []):
            refused, judge_option = option(name), option("judge", judges[0])
            raise UsageError(
                f"{refused} is an option of {judge_option}, and the judge is {judge}.",
                where=refused,
                fix=f"omit {refused}, or {judge_option}",
            )
