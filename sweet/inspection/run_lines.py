"""The lines of work of a run: which artifacts were made of which dialogues, and with what settings.

Dialogues begin a line. Those that an actor of the run played belong to the line of the dialogues that it learned from.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sweet.runs.lineage import Replacements, ancestors, input_of
from sweet.runs.manifest import Artifact, Attempt, Kind, Manifest
from sweet.runs.stages import stage_named
from sweet.stages.artifacts import is_model, own_actor
from sweet.stages.meta import RolloutsMeta, TrainedMeta
from sweet.stages.unseen_tasks import dialogues_on_test_tasks
from sweet.tasks.splits import TEST, VALIDATION

HELD_OUT = (VALIDATION, TEST)
"""Splits whose dialogues evaluate an agent, the preferred last; nothing is to be learned from them."""


class RunLines:
    """Args:
    stale: ids of the stale artifacts.
    """

    def __init__(self, manifest: Manifest, stale: Collection[str]) -> None:
        self.manifest, self.stale = manifest, stale
        self._replacement = Replacements(manifest)

    def fresh(self, kind: Kind) -> list[Artifact]:
        return [artifact for artifact in self.manifest.of_kind(kind, "done") if artifact.id not in self.stale]

    def made(self, kind: Kind, rollouts: Artifact) -> list[Artifact]:
        """Return the finished artifacts of a kind from dialogues, stale ones too."""
        done = self.manifest.of_kind(kind, "done")
        if kind in ("critic", "actor"):  # these may have learned from several rounds
            return [one for one in done if rollouts in ancestors(self.manifest, one)]
        return [one for one in done if input_of(self.manifest, one, "rollouts") == rollouts]

    def newest(self, kind: Kind, rollouts: Artifact) -> Artifact | None:
        """Return the newest artifact of a kind from dialogues that is not stale."""
        return next((one for one in reversed(self.made(kind, rollouts)) if one.id not in self.stale), None)

    def player(self, rollouts: Artifact) -> Artifact | None:
        """Return the actor of the run that played dialogues; None for another agent."""
        return own_actor(self.manifest, rollouts.meta.get("agent"), rollouts.created)

    def has_player(self, rollouts: Artifact) -> bool:
        """Return whether the agent of dialogues can still be asked: it is no actor of the run, or one that is fresh."""
        player = self.player(rollouts)
        return player is None or player.id not in self.stale

    def plays(self, actor: Artifact, rollouts: Artifact) -> bool:
        player = self.player(rollouts)
        return player is not None and player.id == actor.id

    def replaced(self, artifact: Artifact) -> bool:
        """Return whether a fresh artifact has taken the place of this one."""
        newer = self._replacement(artifact)
        return newer is not None and newer.id not in self.stale

    def maker(self, artifact: Artifact) -> Attempt | None:
        """Return the attempt that made an artifact; None where it was imported."""
        attempt = self.manifest.attempt(artifact.attempt)
        return attempt if attempt is not None and stage_named(attempt.stage) is not None else None

    def setting(self, artifact: Artifact, name: str) -> object:
        maker = self.maker(artifact)
        return None if maker is None else maker.config.get(name)

    def template(self, kind: Kind, rollouts: Artifact, before: Artifact | None) -> Attempt | None:
        """Return the attempt whose settings are used again: of what was made of these dialogues, else of the round
        before."""
        made = [*(self.made(kind, before) if before is not None else []), *self.made(kind, rollouts)]
        return self.maker(made[-1]) if made else None

    def refused(self, stage: str, source: Artifact) -> bool:
        """Return whether a stage found nothing to make from an input as it is."""
        tried = [one for one in self.manifest.attempts if one.stage == stage and source.ref() in one.inputs]
        return bool(tried) and tried[-1].status == "failed" and not tried[-1].outputs

    def model(self, rollouts: Artifact) -> str | None:
        """Return the model that played dialogues; None where it was none or is not known (`agent_of`)."""
        agent = RolloutsMeta.of(rollouts).agent or "micro"
        return agent if is_model(agent) else None

    def base(self, rounds: Sequence[Artifact]) -> str | None:
        """Return the model that a critic or actor of these rounds started from."""
        learned = [one for rollouts in rounds for kind in ("actor", "critic") for one in self.made(kind, rollouts)]
        return next((base for one in learned if (base := TrainedMeta.of(one).base)), None)

    def last(self, kind: Kind) -> Artifact | None:
        """Return what a stage reads by default."""
        return next(reversed(self.manifest.of_kind(kind, "done")), None)

    def default_scores(self) -> Artifact | None:
        """Return the scores that are learned from by default (`sweet.stages.unseen_tasks`)."""
        done = reversed(self.manifest.of_kind("scores", "done"))
        return next((scores for scores in done if dialogues_on_test_tasks(self.manifest, scores) is None), None)

    def default_turns(self, critic: Artifact) -> Artifact | None:
        """Return the dialogues that `rank` chooses by default (`sweet.ranking.inputs`)."""
        learned_from = input_of(self.manifest, critic, "rollouts")
        if learned_from is None:
            return None
        keys = ("task", "tasks", "split")
        done = self.manifest.of_kind("rollouts", "done")
        same = [one for one in done if all(one.meta.get(key) == learned_from.meta.get(key) for key in keys)]
        return same[-1] if same else learned_from

    def rounds(self, rollouts: Artifact) -> list[Artifact]:
        """Return the dialogues of all rounds up to these: those that the actor which played them learned from, too."""
        found = [rollouts]
        actor = self.player(rollouts)
        while actor is not None:
            earlier = [one for one in ancestors(self.manifest, actor) if one.kind == "rollouts" and one not in found]
            earlier = [one for one in earlier if one.id not in self.stale]
            found += sorted(earlier, key=lambda one: one.created, reverse=True)
            actor = self.player(found[-1]) if earlier else None
        return found[::-1]

    def same_tasks(self, one: Artifact, other: Artifact) -> bool:
        a, b = RolloutsMeta.of(one), RolloutsMeta.of(other)
        digests = {a.tasks_digest, b.tasks_digest} - {None}
        return (a.tasks, a.split, a.best_of) == (b.tasks, b.split, b.best_of) and len(digests) < 2

    def held_out(self, rollouts: Artifact) -> int:
        """Return the rank of the split of dialogues for evaluation; 0 where it is not for that."""
        split = RolloutsMeta.of(rollouts).split
        return 1 + HELD_OUT.index(split) if split in HELD_OUT else 0

    def for_evaluation(self, rollouts: Artifact) -> bool:
        """Return whether dialogues are there to evaluate: on tasks held out, or one of an actor on each task."""
        once = RolloutsMeta.of(rollouts).samples == 1
        return self.held_out(rollouts) > 0 or (once and self.player(rollouts) is not None)
