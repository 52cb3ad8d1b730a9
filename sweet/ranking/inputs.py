"""The artifacts of a run that a ranking reads: the critic, an earlier ranking's replies, the dialogues."""

from __future__ import annotations

from dataclasses import dataclass

from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.meta import RolloutsMeta
from sweet.stages.unseen_tasks import check_not_test


@dataclass(frozen=True)
class RankInputs:
    """Attributes:
    critic: None where another judge ranks.
    replies: the ranking whose replies are judged again; None where replies are sampled.
    """

    critic: Artifact | None
    replies: Artifact | None
    rollouts: Artifact

    @property
    def artifacts(self) -> list[Artifact]:
        return [artifact for artifact in (self.critic, self.replies, self.rollouts) if artifact is not None]


def find_inputs(
    run: Run, *, by_critic: bool, critic: str | None, replies: str | None, rollouts: str | None, allow_test: bool
) -> RankInputs:
    """Find the inputs by their names.

    Args:
        by_critic: whether a critic judges.
        critic: the newest finished critic where None.
        replies: no earlier replies where None.
        rollouts: where None, those of `replies`, or those that `_default_rollouts` chooses.
        allow_test: accept dialogues on test tasks, and what was made from them.

    Raises:
        UsageError: an artifact is missing or not finished, or was made from dialogues on test tasks.
        InputError: one is not as it was finished.
    """
    found = run.find("critic", critic, needed_by="rank") if by_critic else None
    if replies is not None:
        earlier = run.find("candidates", replies, needed_by="rank --replies")
        chosen = run.input_of(earlier, "rollouts")
    else:
        earlier, rollouts = None, rollouts or run.read_instead("rollouts")
        default = None if rollouts is not None else _default_rollouts(run, found)
        chosen = default or run.find("rollouts", rollouts, needed_by="rank")
    inputs = RankInputs(found, earlier, chosen)
    check_not_test(run, inputs.artifacts, allow=allow_test, needed_by="rank")
    run.verify(chosen, sums=False)
    return inputs


def _default_rollouts(run: Run, critic: Artifact | None) -> Artifact | None:
    """Return the newest dialogues on the split that the critic learned from, even on more or fewer of its tasks; for
    another judge on the split train. Dialogues of an evaluation on another split are not chosen. None where the run
    has no finished rollouts."""
    done = run.manifest().of_kind("rollouts", "done")
    if not done:
        return None
    if critic is None:
        return next((artifact for artifact in reversed(done) if RolloutsMeta.of(artifact).split == "train"), done[-1])
    learned_from = run.input_of(critic, "rollouts")
    keys = ("task", "tasks", "split")
    same = [a for a in done if all(a.meta.get(key) == learned_from.meta.get(key) for key in keys)]
    return same[-1] if same else learned_from
