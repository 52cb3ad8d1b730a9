"""The critic of a run as credit rules ask it (`sweet.credit.base.Models.advantages`): found before a training, and
loaded when a rule first asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from sweet.credit.base import CreditRule
from sweet.device import Device
from sweet.errors import UsageError
from sweet.hints import option
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import Reporter
from sweet.stages.critics import CriticSettings, load_critic, warn_dropped_turns, warn_if_at_chance
from sweet.tasks.trajectory import Trajectory

if TYPE_CHECKING:
    from sweet.learn.critic import Critic


def critic_of(run: Run, rule: CreditRule, named: str | None, *, needed_by: str) -> Artifact | None:
    """Return the critic that a rule asks; None for a rule that asks none.

    Args:
        named: its id; None for the newest finished one.

    Raises:
        UsageError: there is no critic, or one is named for a rule that asks none.
    """
    if rule.asks_critic:
        return run.find("critic", named, needed_by=needed_by)
    if named is not None:
        raise UsageError(f"The rule {rule.name} asks no critic.", where=option("critic", named), fix="omit it")
    return None


class RunCritic:
    """Answers for a critic.

    Args:
        load: returns the critic. None for a training that is only planned: nothing is computed, and every turn has
            another number, so that no two are equal.
        reporter: gets what the critic could not read.
    """

    def __init__(self, load: Callable[[], Critic] | None, reporter: Reporter) -> None:
        self._load, self._reporter = load, reporter
        self._warned = False

    @classmethod
    def of(
        cls, run: Run, artifact: Artifact, reporter: Reporter, device: Device, max_length: int | None, *, planned: bool
    ) -> RunCritic:
        """Return the answers of a critic of the run; see `sweet.stages.critics.load_critic` for the errors of loading.

        Args:
            max_length: tokens of a sequence that it reads at most; None for its context.
            planned: nothing is computed.
        """

        def load() -> Critic:
            reporter.say(f"Advantages by {artifact.id}.")
            warn_if_at_chance(run, artifact, reporter)
            return load_critic(run, artifact, reporter, CriticSettings(device=device, max_length=max_length))

        return cls(None if planned else load, reporter)

    @cached_property
    def _critic(self) -> Critic | None:
        return None if self._load is None else self._load()

    def advantages(self, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, float]]:
        """See `sweet.credit.base.Models.advantages`."""
        if self._critic is None:
            turns = [(dialogue.id, turn) for dialogue in dialogues for turn in dialogue.agent_turns]
            found: dict[str, dict[int, float]] = {dialogue.id: {} for dialogue in dialogues}
            for number, (name, turn) in enumerate(turns):
                found[name][turn] = float(number)
            return found
        scores = self._critic.turn_scores(dialogues, None)
        if not self._warned:  # an online training asks at each step
            reader = self._critic.reader
            warn_dropped_turns(reader.dropped, reader.max_length, self._reporter)
            self._warned = self._critic.reader.dropped > 0
        return {dialogue.id: of_turns for dialogue, of_turns in zip(dialogues, scores, strict=True)}
