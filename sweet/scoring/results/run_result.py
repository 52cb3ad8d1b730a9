"""The result of a run, which everything that shows a result reads here, from the manifest alone.

It is the evaluation of the agent that the run keeps, on test tasks where it was evaluated on them, and beside it the
evaluation of the first agent on the same tasks. After `sweet train` its record says which agent is kept, and which
scores are those of each round; actors of its other rounds were discarded, so they are no result. Where the stages were
called one by one, or after it, the newest trained actor counts that was evaluated on tasks held out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pydantic import ConfigDict, Field

from sweet.json_value import JsonValue
from sweet.runs.lineage import input_of
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.stages.artifacts import actor_of, agent_name, own_actor
from sweet.stages.meta import RolloutsMeta, ScoresMeta
from sweet.stages.record import RecordedRecord
from sweet.tasks.splits import TEST, VALIDATION

HELD_OUT = (VALIDATION, TEST)
"""Splits whose dialogues evaluate an agent, the preferred last; nothing is to be learned from them."""


class Round(RecordedRecord):
    """One round of `sweet train`, as far as it decides the result."""

    model_config = ConfigDict(extra="ignore")

    agent: str = ""
    """the agent that was evaluated: the starting model, or the id of an actor"""
    artifacts: dict[str, str] = Field(default_factory=dict)
    """the ids of what its steps made"""


class Rounds(RecordedRecord):
    """What `sweet train` has recorded of its rounds so far."""

    rounds: list[Round] = Field(default_factory=list)
    """from that of the starting agent on"""
    best: str = ""
    """the agent that is kept"""
    ended_early: bool = False
    """whether they ended because the actor was no longer better"""

    @property
    def artifacts(self) -> set[str]:
        """The ids of all that its steps made."""
        return {id for round_ in self.rounds for id in round_.artifacts.values()}


@dataclass(frozen=True)
class RunResult:
    """Attributes:
    scores: of the agent.
    rollouts: the dialogues that were scored.
    agent: its name, for an actor of the run its id.
    before: the scores of the first agent on the same tasks; None where there are none, or the agent is the first one.
    train: the attempt of `sweet train` that decided which agent is kept; None where the user did.
    rounds: what it has recorded.
    """

    scores: Artifact
    rollouts: Artifact
    agent: str
    before: Artifact | None = None
    train: Attempt | None = None
    rounds: Rounds | None = None


def result_of(manifest: Manifest, stale: Collection[str] = ()) -> RunResult | None:
    """Return the result of a run; None where no agent has been evaluated.

    Args:
        stale: ids of stale artifacts, which count only where there are no others.
    """
    listed = list(_scored(manifest))
    train, rounds = rounds_of(manifest)
    discarded = {round_.agent for round_ in rounds.rounds[1:]} - {rounds.best}
    of_train = {round_.agent: round_.artifacts.get(f"eval {TEST}", "") for round_ in rounds.rounds}
    order = [scores.id for scores, _ in listed]
    if (best_scores := of_train.get(rounds.best)) in order:
        index = order.index(best_scores)
        by_hand = [pair for pair in listed[index + 1 :] if _is_new(manifest, pair[1], rounds)]
        if not by_hand:
            first = rounds.rounds[0].agent
            before = manifest.artifact(of_train[first]) if rounds.best != first else None
            return RunResult(*listed[index], rounds.best, before, train, rounds)
        listed = by_hand
    pairs = {after.id: before for before, after in before_and_after(manifest)}  # the last one is the first agent's
    candidates = [(scores, root) for scores, root in listed if agent_name(manifest, root) not in discarded]
    if not candidates:
        return None

    def preference(scores: Artifact, rollouts: Artifact) -> tuple[bool, bool, bool, int, bool]:
        split = rank_of_split(rollouts)
        is_actor = actor_of(manifest, rollouts) is not None
        return split > 0, is_actor, scores.id in pairs, split, scores.id not in stale

    best = max(preference(*pair) for pair in candidates)
    scores, rollouts = [pair for pair in candidates if preference(*pair) == best][-1]
    return RunResult(scores, rollouts, agent_name(manifest, rollouts) or "", pairs.get(scores.id))


def rounds_of(manifest: Manifest) -> tuple[Attempt | None, Rounds]:
    """Return the newest attempt of `sweet train` that has evaluated an agent, and what it has recorded; None if there
    is none."""
    for attempt in reversed(manifest.attempts):
        if attempt.stage == "train" and (rounds := Rounds.read(attempt.metrics)).rounds:
            return attempt, rounds
    return None, Rounds()


def rank_of_split(rollouts: Artifact | None) -> int:
    """Return 2 for dialogues on the test split, 1 for the validation split, 0 for any other."""
    split = None if rollouts is None else RolloutsMeta.of(rollouts).split
    return 1 + HELD_OUT.index(split) if split in HELD_OUT else 0


def played_by(manifest: Manifest, artifact: Artifact) -> str:
    """Return whose dialogues an artifact is of, and on which tasks: `actor-1 on test tasks`; empty if not recorded."""
    rollouts = input_of(manifest, artifact, "rollouts")
    if rollouts is None:
        return ""
    split = RolloutsMeta.of(rollouts).split
    return " on ".join(filter(None, (agent_name(manifest, rollouts), split and f"{split} tasks")))


def _scored(manifest: Manifest) -> Iterator[tuple[Artifact, Artifact]]:
    """Yield the finished scores of agents with the dialogues that were scored, the newest last; in those of an online
    training the agent changes."""
    for scores in manifest.of_kind("scores", "done"):
        rollouts, maker = input_of(manifest, scores, "rollouts"), manifest.attempt(scores.attempt)
        if rollouts is not None and (maker is None or maker.stage != "train-online"):
            yield scores, rollouts


def _is_new(manifest: Manifest, rollouts: Artifact, rounds: Rounds) -> bool:
    """Return whether an actor that is of no round played dialogues that evaluate it."""
    actor = actor_of(manifest, rollouts)
    return actor is not None and actor.id not in rounds.artifacts and rank_of_split(rollouts) > 0


def bases(manifest: Manifest, actor: Artifact) -> Iterator[str]:
    """Yield the base of an actor, the base of that one if it is an actor of the run, and so on."""
    base: Artifact | None = actor
    while base is not None:
        name = base.meta.get("base")
        base = own_actor(manifest, name, base)
        yield str(name or "") if base is None else base.id


def before_and_after(manifest: Manifest) -> Iterator[tuple[Artifact, Artifact]]:
    """Yield the newest scores of a trained actor's base and of the actor, by the same scorer on the same tasks.

    If the base is a trained actor too, also yield, after it, the scores of the first agent with those of the actor.
    """
    scored = {rollouts.id: (scores, rollouts) for scores, rollouts in _scored(manifest)}
    for scores, rollouts in scored.values():
        actor = actor_of(manifest, rollouts)
        if actor is None:
            continue
        comparable = [
            (other, root)
            for other, root in scored.values()
            if _tasks(root) == _tasks(rollouts) and ScoresMeta.of(other).scorer == ScoresMeta.of(scores).scorer
        ]
        newest = {agent_name(manifest, root): other for other, root in comparable}
        ancestors = [newest[name] for name in bases(manifest, actor) if name in newest]
        untrained = [other for other, root in comparable if actor_of(manifest, root) is None]
        for before in [*ancestors[:1], *ancestors[1:][-1:]] or untrained[-1:]:
            yield before, scores


def _tasks(rollouts: Artifact) -> list[JsonValue]:
    return [rollouts.meta.get(key) for key in ("task", "tasks", "split", "tasks_digest")]
