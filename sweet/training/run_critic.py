"""The critic of a run as credit rules ask it (`sweet.credit.base.Models.advantages`): found before a training, and
loaded when a rule first asks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from sweet.credit.base import CreditRule
from sweet.errors import UsageError
from sweet.hints import option
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import Reporter
from sweet.stages.critics import CriticSettings, load_critic, warn_dropped_turns, warn_if_at_chance
from sweet.tasks.trajectory import Trajectory

if TYPE_CHECKING:
    from sweet.learn.critic import Critic


class RunCritic:
    """Answers for a critic; see `sweet.stages.critics.load_critic` for the errors of loading.

    Args:
        artifact: the critic.
        reporter: gets what it could not read.
    """

    def __init__(self, run: Run, artifact: Artifact, settings: CriticSettings, reporter: Reporter) -> None:
        self.artifact = artifact
        self._run, self._settings, self._reporter = run, settings, reporter
        self._warned = False

    @classmethod
    def find(
        cls,
        run: Run | None,
        rule: CreditRule,
        named: str | None,
        settings: CriticSettings,
        reporter: Reporter,
        *,
        needed_by: str,
    ) -> RunCritic | None:
        """Return the critic that a rule asks; None for a rule that asks none.

        Args:
            run: None for one that does not exist yet.
            named: its id; None for the newest finished one.

        Raises:
            UsageError: there is no critic, or one is named for a rule that asks none.
        """
        if not rule.asks_critic:
            if named is not None:
                raise UsageError(f"The rule {rule.name} asks no critic.", where=option("critic", named), fix="omit it")
            return None
        if run is None:
            raise UsageError(f"{needed_by} needs a critic, and there is no run yet.", fix="sweet train-critic")
        return cls(run, run.find("critic", named, needed_by=needed_by), settings, reporter)

    @cached_property
    def _critic(self) -> Critic:
        self._reporter.say(f"Advantages by {self.artifact.id}.")
        warn_if_at_chance(self._run, self.artifact, self._reporter)
        return load_critic(self._run, self.artifact, self._reporter, self._settings)

    def advantages(self, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, float]]:
        """See `sweet.credit.base.Models.advantages`."""
        scores = self._critic.turn_scores(dialogues, None)
        if not self._warned:  # an online training asks at each step
            reader = self._critic.reader
            warn_dropped_turns(reader.dropped, reader.max_length, self._reporter)
            self._warned = reader.dropped > 0
        return {dialogue.id: of_turns for dialogue, of_turns in zip(dialogues, scores, strict=True)}
