"""The options of a judge, which the stages that use judges share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from sweet.device import Device
from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.tasks.base import ReferenceContext, TurnTokens

JudgeName = Literal["critic", "llm", "oracle", "random", "untrained"]
"""The judges that an option can name."""

RankJudgeName = Literal["critic", "llm", "oracle", "random", "untrained", "lookahead"]
"""The judges of a ranking. What comes next is not known while a dialogue is played, so none of `JudgeName` is
lookahead."""

LOOKAHEAD = "lookahead"
CRITIC_JUDGES = ("critic", "untrained")
"""The judges, by name, that are models which read each reply on this machine or on Ray's nodes."""

JUDGES_OF_OPTION: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("judge_model", "judge_url", "judge_prompt"), ("llm",)),
    "reference_context": ("critic",),
    **dict.fromkeys(("reference", "max_length", "turn_tokens"), CRITIC_JUDGES),
}
"""The options that the stages share and only some judges accept, with those judges."""


class JudgeConfig(Protocol):
    """The options of a judge."""

    @property
    def judge_model(self) -> str | None: ...
    @property
    def judge_url(self) -> list[str]: ...
    @property
    def judge_prompt(self) -> Path | None: ...
    @property
    def judge_tokens(self) -> int: ...
    @property
    def reference(self) -> str | None: ...
    @property
    def reference_context(self) -> ReferenceContext | None: ...
    @property
    def turn_tokens(self) -> TurnTokens | None: ...
    @property
    def device(self) -> Device: ...
    @property
    def concurrency(self) -> int: ...
    @property
    def seed(self) -> int: ...


def check_judge_options(judge: str, given: Mapping[str, object], judges_of_option: Mapping[str, Sequence[str]]) -> None:
    """Check that the options of a judge belong to it.

    Args:
        given: the values of the options, by field.
        judges_of_option: options that only some judges accept, with those judges.

    Raises:
        UsageError: an option belongs to another judge, or the language model that judges is missing.
    """
    if judge == "llm" and given.get("judge_model") is None:
        raise UsageError(
            "The judge llm needs a model.", where=option("judge", "llm"), fix=option("judge_model", "MODEL")
        )
    for name, judges in judges_of_option.items():
        if judge not in judges and given.get(name) not in (None, []):
            named, other = option(name), option("judge", judges[0])
            raise UsageError(
                Hint(named, " is an option of ", other, f", and the judge is {judge}."),
                where=named,
                fix=Hint("omit ", named, ", or ", other),
            )
