"""What `sweet train --algorithm NAME` does in a round, by the credit rule of this name.

    sweet            play, score, label, train the critic, rank, pair, train the actor
    another rule     the same as far as it reads, then train the actor by it
    an online rule   train online, which plays and scores itself; before it, for a rule that asks a critic: play, score,
                     label and train the critic

A rule that learns online and from recorded dialogues is trained online.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sweet.credit.base import CreditRule
from sweet.credit.registry import rule_class
from sweet.errors import UsageError
from sweet.hints import option, stage
from sweet.judges.options import LOOKAHEAD, RUN_CRITICS
from sweet.online.config import TrainOnlineConfig
from sweet.pipeline.config import LoopConfig
from sweet.runs.manifest import Kind
from sweet.tasks.splits import TRAIN

SWEET = "sweet"
"""The algorithm of the paper, whose actor `[train-actor] algorithm` may replace."""

ONLINE = "train-online"
"""The stage, and the title of its step."""

MADE_BY: dict[Kind, str] = {
    "rollouts": f"rollout {TRAIN}",
    "scores": f"eval {TRAIN}",
    "preferences": "label",
    "critic": "train-critic",
    "candidates": "rank",
    "pairs": "pair",
}
"""The title of the step that makes what a rule reads."""

TRAINING = ("label", "train-critic", "rank", "pair", "train-actor", ONLINE)
"""The stages that one algorithm has and another has not."""


@dataclass(frozen=True)
class Algorithm:
    """Attributes:
    rule: by which the actor learns.
    online: whether it is trained online.
    judge: of the replies that it reads, where it reads ranked replies (`RankConfig.judge`).
    """

    rule: type[CreditRule]
    online: bool
    judge: str = "critic"

    @property
    def critic(self) -> bool:
        """Whether a critic is trained."""
        return self.rule.asks_critic or (self.ranks and self.judge in RUN_CRITICS)

    @property
    def ranks(self) -> bool:
        """Whether replies are sampled and ranked."""
        return not self.online and self.rule.reads in ("candidates", "pairs")

    def steps(self, number: int, retrain_critic: bool) -> list[str]:
        """Return the titles of the steps by which a round learns, in their order.

        Args:
            number: of the round, from 1.
            retrain_critic: whether a later round trains a critic, too.
        """
        trains = self.critic and (number == 1 or retrain_critic)
        included = {
            MADE_BY["rollouts"]: self.critic or not self.online,
            MADE_BY["scores"]: self.critic or not self.online,
            MADE_BY["preferences"]: trains or (not self.online and self.rule.reads == "preferences"),
            MADE_BY["critic"]: trains,
            MADE_BY["candidates"]: self.ranks,
            MADE_BY["pairs"]: not self.online and self.rule.reads == "pairs",
            "train-actor": not self.online,
            ONLINE: self.online,
        }
        return [title for title, is_done in included.items() if is_done]

    def has_table(self, table: str) -> bool:
        """Return whether a table of recipes is of a stage that this algorithm has, or of all."""
        return table not in TRAINING or table in self.steps(1, True)

    def check_given(self, fields_set: Collection[str], assignments: Sequence[str]) -> None:
        """Check that the options of a call are of stages that this algorithm has.

        Args:
            fields_set: the fields of the options that were given.
            assignments: those of `--set`.

        Raises:
            UsageError: one of them is of a stage that it does not have.
        """
        if self.online and not self.critic and "samples" in fields_set:
            raise UsageError(
                f"{self.rule.name} plays a group of dialogues on each task of a step.",
                where="--samples",
                fix=option("set_", f"{ONLINE}.group=DIALOGUES"),
            )
        has = self.steps(1, True)
        for assignment in assignments:
            table, _, rest = assignment.strip().partition(".")
            if not self.has_table(table):
                stages = [title for title in TRAINING if title in has]
                field = rest.partition("=")[0].strip().replace("-", "_")
                takes = self.online and field in TrainOnlineConfig.model_fields
                fix: str = option("set_", f"{ONLINE}.{rest}") if takes else "omit it"
                if table == ONLINE:
                    fix = "name an algorithm that learns online: --algorithm grpo"
                raise UsageError(
                    f"{table} is no stage of {self.rule.name}, which has {', '.join(stages)}.",
                    where=f"--set {assignment}",
                    fix=fix,
                )


def algorithm_of(config: LoopConfig, judge: str = "critic") -> Algorithm:
    """Return the algorithm of a loop.

    Args:
        judge: of the ranking, if the algorithm has one.

    Raises:
        UsageError: there is no such rule, or it does not fit a loop of these options.
    """
    rule = rule_class(config.algorithm)
    algorithm = Algorithm(rule, rule.online, judge)
    if algorithm.ranks and judge == LOOKAHEAD and not isinstance(config.sim, str):
        raise UsageError(
            "The judge lookahead asks one human, and the dialogues have several.",
            where=option("judge", LOOKAHEAD),
            fix="one --sim, or --set rank.judge=critic",
        )
    if not algorithm.online and rule.reads == "rollouts":
        raise UsageError(
            f"{rule.name} learns every dialogue, good or bad, so an agent would learn what it does already.",
            where=option("algorithm", rule.name),
            fix=(f"on dialogues of a better agent: {stage('train-actor', algorithm=rule.name, model='MODEL')}"),
        )
    if algorithm.online and config.rounds > 1:
        raise UsageError(
            f"{rule.name} learns in one round of many steps.",
            where=option("rounds", config.rounds),
            fix=f"--rounds 1 and {option('set_', f'{ONLINE}.steps=STEPS')}",
        )
    return algorithm
