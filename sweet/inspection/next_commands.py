"""The next commands of a run, from its manifest.

What is unfinished is resumed first. Otherwise the newest dialogues that can be learned from are continued: from the
artifact of the pipeline that was made of them last, the next stage follows. Dialogues of an actor are a further round:
critic and actor are trained again, from the model of the first round, on the data of all rounds (docs/training.md).
An actor is played on tasks for evaluation, and compared with the first agent on the same tasks. After `sweet train` its
result is shown (`sweet.scoring.results.run_result`), and further rounds are those of `sweet train`.

A command repeats the settings of the newest attempt of its stage, except those of a stranger that would start something
(`sweet.runs.trust`), and names its inputs where the stage would choose others. Learning never goes through dialogues on
tasks for evaluation. What a stage has refused on the same input is not suggested again: without preferences more
samples are played, without pairs more replies ranked. Nor is the call of the newest attempt where a server refused
everything that it asked: `advice` says what to change first.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from sweet.errors import SweetError
from sweet.runs.lineage import Staleness, ancestors, input_of
from sweet.runs.manifest import Artifact, Attempt, Kind, Manifest
from sweet.runs.stages import RECIPE, ROUND_SEEDS, stage_making, stage_named
from sweet.runs.trust import only_known
from sweet.runs.unfinished import is_unseen, to_resume, valid_settings
from sweet.scoring.results.run_result import Rounds, RunResult, rank_of_split, result_of
from sweet.stages.artifacts import actor_of, is_model, own_actor
from sweet.stages.failures import NOTHING_TO_PREFER, REFUSED
from sweet.stages.meta import RolloutsMeta, ScoresMeta, TrainedMeta
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import TEST, TRAIN, Holdout, load_split, names_no_split

MORE_SAMPLES = 4
"""Dialogues of each task to add where none of a task's is better than another."""

MODEL, FILE = "MODEL", "FILE"
"""Placeholders of what only the user knows."""

PLACEHOLDERS = {MODEL: "the model to train: micro, a directory or a hub id", FILE: "a file of your own"}
"""What to put in their place."""

_ORDER: tuple[Kind, ...] = ("rollouts", "scores", "preferences", "critic", "candidates", "pairs")
"""What is made of dialogues, one after the other."""
_OF_ONE_CALL = {
    *("resume", "trust", "new", "verify", "compare", "flips", "allow_different", "allow_test"),
    *("from_", "rollouts", "replies", "best_of_by", "critic"),
}
"""Settings that are not repeated: they belong to the call that they were given to, or name its inputs."""


def suggest_next(manifest: Manifest, run: str | Path = "RUN", stale: Collection[str] | None = None) -> list[str]:
    """Return the next commands, the most likely first.

    Args:
        manifest: as `Run.manifest` returns it, with dead attempts as interrupted.
        run: the run's name in the commands.
        stale: ids of the stale artifacts; by default determined from the manifest alone.
    """
    if stale is None:
        staleness = Staleness(manifest, lambda artifact: artifact.sha256)
        stale = {artifact.id for artifact in manifest.artifacts if staleness(artifact) is not None}
    path = Path(run)
    # What cannot be seen from here may have ended: it is followed, or gone on with.
    running = {one.stage: is_unseen(one) for one in manifest.attempts if one.status == "running"}
    first = [_line("status", path, "--follow")] if running else []
    loop = [attempt for attempt in manifest.attempts if attempt.stage == "train"]
    refused = _refused_by_a_server(manifest)
    if (path / RECIPE).is_file() and running.get("train", True) and (not loop or loop[-1].status != "done"):
        again = _line("train", path, *_more_to_prefer(loop[-1] if loop else None))
        return first if refused is not None else [*first, again]
    suggestions = _Suggestions(manifest, path, stale)
    resumed = [attempt for attempt in to_resume(manifest) if suggestions.can_resume(attempt)]
    first += [_line(attempt.stage, path, "--resume") for attempt in resumed]
    busy = {*running, *(attempt.stage for attempt in resumed)}
    # An online training plays its dialogues itself.
    waits = "train" in running or ("train-online" in busy and not manifest.of_kind("rollouts", "done"))
    following = [] if waits else [one for one in suggestions.forward() if one.split()[1] not in busy]
    found = dict.fromkeys([*first, *following])
    if refused is not None and (stage := stage_named(refused.stage)) is not None:
        for command in (stage.command(only_known(refused.config), path), _line(refused.stage, path, "--resume")):
            found.pop(command or "", None)
    return list(found)


def advice(manifest: Manifest) -> str | None:
    """Return what to change where a server refused everything that the newest attempt asked."""
    refused = _refused_by_a_server(manifest)
    return None if refused is None else f"{refused.id} would be refused again: {REFUSED}."


def to_fill_in(commands: Sequence[str]) -> list[str]:
    """Return what is to be put in the place of each placeholder that the commands contain."""
    words = {word for command in commands for word in shlex.split(command)}
    return [f"{name} is {what}." for name, what in PLACEHOLDERS.items() if name in words]


def _refused_by_a_server(manifest: Manifest) -> Attempt | None:
    """Return the newest attempt if a server refused everything that it asked, as it would again."""
    newest = manifest.attempts[-1] if manifest.attempts else None
    return newest if newest is not None and (newest.error or "").endswith(REFUSED) else None


def _more_to_prefer(loop: Attempt | None) -> list[str]:
    """Return the options with which `sweet train` goes on where no dialogue was better than another."""
    samples = None if loop is None else loop.config.get("samples")
    if loop is None or not isinstance(samples, int) or not (loop.error or "").startswith(NOTHING_TO_PREFER):
        return []
    return ["--samples", str(2 * samples), "--redo"]


def _line(command: str, *words: str | Path) -> str:
    return shlex.join(["sweet", *command.split(), *map(str, words)])


def has_splits(manifest: Manifest, rollouts: Artifact) -> bool:
    """Return whether the tasks of dialogues have a split for training and one for testing, by the dataset."""
    meta = RolloutsMeta.of(rollouts)
    holdout = Holdout(meta.holdout, meta.holdout_validation)
    try:
        kind = task_kind(manifest.task)
        source = meta.tasks or kind.tasks_for()
        unsplit = not holdout.given and names_no_split(kind, source)
        return not unsplit and all(load_split(kind, source, split, holdout).tasks for split in (TRAIN, TEST))
    except SweetError:  # it is not on this machine, or has other splits
        return False


class _Suggestions:
    """The next commands where nothing runs."""

    def __init__(self, manifest: Manifest, run: Path, stale: Collection[str]) -> None:
        self.manifest, self.run, self.stale = manifest, run, stale

    def can_resume(self, attempt: Attempt) -> bool:
        """Return whether all that an attempt read is there as it was, its actors too."""
        inputs = [self.manifest.artifact(ref.id) for ref in attempt.inputs]
        fresh = [one for one in inputs if one is not None and one.id not in self.stale]
        named = [own_actor(self.manifest, attempt.config.get(name), attempt) for name in ("agent", "model")]
        ranked = [one for one in fresh if one.kind == "rollouts" and attempt.stage == "rank"]
        asked = [actor_of(self.manifest, one) for one in ranked]
        same = [one.ref() for one in fresh] == attempt.inputs
        return same and not any(actor is not None and actor.id in self.stale for actor in [*named, *asked])

    def forward(self) -> list[str]:
        """Return the next commands where nothing is unfinished."""
        done = [one for one in self.manifest.of_kind("rollouts", "done") if self._has_player(one)]
        if not done:
            return [self._call("rollout", None, task=self.manifest.task)]
        if done[-1].id in self.stale or not done[-1].rows:
            maker = self._maker(done[-1])
            stage = None if maker is None else stage_named(maker.stage)
            again = maker is not None and stage is not None and stage.command(only_known(maker.config), self.run)
            return [again or _line("data import", FILE, self.run)]
        if not any(self._newest(kind, done[-1]) for kind in ("scores", "candidates", "pairs", "actor")):
            return [self._eval(done[-1])]
        result = result_of(self.manifest, self.stale)
        rounds = None if result is None else result.rounds
        newest = [] if self._evaluates(done[-1]) else done[-1:]
        for kind in ("preferences", "critic", "candidates", "pairs", "actor"):
            newest += [one for one in self.manifest.of_kind(kind, "done") if one.id not in self.stale][-1:]
        # Dialogues to learn from, and what no round made of some, are the user's own: they are gone on with.
        if result and rounds and rounds.artifacts.issuperset(one.id for one in newest):
            return self._after_rounds(result, rounds)
        current = [one for one in done if one.id not in self.stale]
        learned_from = [one for one in current if not self._evaluates(one)]
        if not learned_from:
            return [self._play_to_learn(current)]
        actor = self._newest("actor", learned_from[-1])
        if actor is None:
            return [self._towards_actor(learned_from[-1])]
        return self._evaluate(actor, learned_from[-1], current)

    def _after_rounds(self, result: RunResult, rounds: Rounds) -> list[str]:
        """Return what follows `sweet train`: the kept agent against the first one, and more rounds."""
        found = [] if result.before is None else [self._compare(result.before, result.scores)]
        found += [_line("report", self.run), _line("view", self.run)]
        agents = [one.agent for one in rounds.rounds]
        words = [] if rounds.ended_early else ["--rounds", str(len(agents))]
        waited = len(agents) - 1 - agents.index(rounds.best)
        patience = None if result.train is None else result.train.config.get("patience")
        if isinstance(patience, int) and waited >= patience:  # else it would end at once
            words += ["--patience", str(waited + 1)]
        is_online = any("train-actor" not in one.artifacts for one in rounds.rounds[1:])  # which has one round
        return found if is_online else [*found, _line("train", self.run, *words)]

    def _towards_actor(self, rollouts: Artifact) -> str:
        """Return the next step from dialogues to an actor, by the algorithm of the actor that played them."""
        player = actor_of(self.manifest, rollouts)
        learned = next((self.manifest.artifact(ref.id) for ref in player.inputs), None) if player else None
        reads, algorithm = "pairs", None
        if player is not None and learned is not None and learned.kind in _ORDER:
            reads, algorithm = learned.kind, TrainedMeta.of(player).algorithm
        for kind in reversed(_ORDER[: _ORDER.index(reads) + 1]):
            found = rollouts if kind == "rollouts" else self._newest(kind, rollouts)
            if found is not None and kind == reads:
                return self._train("actor", found, rollouts, algorithm)
            if found is not None:
                return self._after(found, rollouts)
        raise AssertionError("dialogues are made of themselves")

    def _after(self, made: Artifact, rollouts: Artifact) -> str:
        """Return the stage that follows what was made of dialogues."""
        if made.kind == "rollouts":
            return self._eval(made)
        if made.kind == "preferences":
            return self._train("critic", made, rollouts)
        if made.kind == "critic":
            return self._rank(made, rollouts)
        samples = RolloutsMeta.of(rollouts).samples
        if made.kind == "scores" and (samples == 1 or self._refused("label", made)):
            maker = self._maker(rollouts)
            agent = {} if maker is not None and maker.stage == "rollout" else {"agent": MODEL}
            return self._call("rollout", maker, samples=(samples or 0) + MORE_SAMPLES, **agent)
        critic = input_of(self.manifest, made, "critic")
        if made.kind == "candidates" and critic is not None and self._refused("pair", made):
            replies = self._setting(made, "candidates") or 16
            return self._rank(critic, rollouts, candidates=2 * int(str(replies)))
        return self._reading(stage_making(_ORDER[_ORDER.index(made.kind) + 1]).name, made)

    def _train(self, kind: Kind, source: Artifact, rollouts: Artifact, algorithm: str | None = None) -> str:
        """Return the training of a critic or actor on what the newest dialogues became, and those of earlier rounds."""
        stage = stage_making(kind).name
        like = self._like(stage, source)
        by_round = {}
        for one in self.manifest.of_kind(source.kind, "done"):
            root = input_of(self.manifest, one, "rollouts")
            if root is not None and one.id not in self.stale and not self._evaluates(root):
                by_round[root.id] = one
        several = actor_of(self.manifest, rollouts) is not None and len(by_round) > 1
        changes: dict[str, Any] = {}
        given = None if like is None else like.config.get("model")
        if given is None and (several or self._model(rollouts) is None):
            bases = [TrainedMeta.of(one).base for one in self.manifest.artifacts if one.kind in ("critic", "actor")]
            first = self.manifest.artifact(next(iter(by_round)))
            changes["model"] = next(filter(None, [first and self._model(first), *bases]), MODEL)
        if algorithm not in (None, "sweet"):
            changes["algorithm"] = algorithm
        if several:
            return self._call(stage, like, **changes, from_=[one.id for one in by_round.values()])
        return self._reading(stage, source, like, **changes)

    def _rank(self, critic: Artifact, rollouts: Artifact, **changes: Any) -> str:
        if self._newest("candidates", rollouts) is None:  # else the same agent is asked again
            changes |= {"agent": None, "agent_url": []}
        if self._model(rollouts) is None:
            bases = [TrainedMeta.of(one).base for one in ancestors(self.manifest, critic) if one.kind == "critic"]
            changes["agent"] = next(filter(None, bases), MODEL)
        elif self._setting(rollouts, "agent_url"):
            changes["agent_url"] = self._setting(rollouts, "agent_url")
        if len(self.manifest.of_kind("rollouts", "done")) > 1:
            changes["rollouts"] = rollouts.id
        return self._reading("rank", critic, **changes)

    def _play_to_learn(self, current: Sequence[Artifact]) -> str:
        """Return the rollout of training tasks, like the dialogues on tasks for evaluation that there are."""
        like = ([one for one in current if actor_of(self.manifest, one) is None] or list(current))[-1]
        samples = max(MORE_SAMPLES, RolloutsMeta.of(like).samples or 1)
        changes = {} if has_splits(self.manifest, like) else {"tasks": FILE}
        return self._call("rollout", self._maker(like), split=TRAIN, samples=samples, **changes)

    def _evaluate(self, actor: Artifact, learned_from: Artifact, current: Sequence[Artifact]) -> list[str]:
        """Return what follows the training of an actor: its evaluation, that of the first agent, the comparison."""
        played = [one for one in current if actor_of(self.manifest, one) == actor and self._evaluates(one)]
        others = sorted((one for one in current if actor_of(self.manifest, one) is None), key=rank_of_split)
        first = min(
            (one for one in ancestors(self.manifest, actor) if one.kind == "rollouts"), key=self.manifest.position
        )
        agent = {"agent": str(self.run / actor.path), "agent_url": []}
        if not played:
            if others and rank_of_split(others[-1]) > 0:
                return [self._call("rollout", self._maker(others[-1]), **agent)]
            maker = self._maker(first)
            split = {"split": TEST} if maker is None or has_splits(self.manifest, first) else {}
            return [self._call("rollout", maker, **agent, samples=1, **split)]
        ours = self._newest("scores", played[-1])
        if ours is None:
            return [self._eval(played[-1])]
        samples = max(2, RolloutsMeta.of(learned_from).samples or MORE_SAMPLES)
        seed = int(str(self._setting(learned_from, "seed") or 0)) + ROUND_SEEDS
        again = self._call("rollout", self._maker(learned_from), **agent, samples=samples, seed=seed, split=TRAIN)
        shown = [_line("report", self.run), _line("view", self.run), again]
        same = [one for one in others if _same_tasks(one, played[-1])]
        if not same:
            base = self._model(first)
            if base is None:
                return shown
            urls = self._setting(first, "agent_url") or []
            return [self._call("rollout", self._maker(played[-1]), agent=base, agent_url=urls)]
        theirs = self._newest("scores", same[-1])
        if theirs is None:
            return [self._eval(same[-1])]
        if ScoresMeta.of(theirs).scorer != ScoresMeta.of(ours).scorer:
            return [self._eval(played[-1], self._maker(theirs))]
        return [self._compare(theirs, ours), *shown]

    def _compare(self, before: Artifact, after: Artifact) -> str:
        return _line("compare", *(f"{self.run}:{scores.id}" for scores in (before, after)))

    def _eval(self, rollouts: Artifact, like: Attempt | None = None) -> str:
        """Return the evaluation of dialogues without the options of --best-of-by, which is not repeated."""
        return self._reading("eval", rollouts, like, reference_context=None, turn_tokens=None)

    def _reading(self, stage: str, source: Artifact, like: Attempt | None = None, **changes: Any) -> str:
        """Return the call of a stage on an input, which is named if the stage might read another by default."""
        done = self.manifest.of_kind(source.kind, "done")
        if done[-1:] != [source]:
            newer = done[done.index(source) + 1 :]
            roots = [input_of(self.manifest, one, "rollouts") for one in newer]
            if stage != "label" or not all(rank_of_split(root) == 2 for root in roots):  # these it leaves out
                changes["from_"] = source.id
        return self._call(stage, like or self._like(stage, source), **changes)

    def _like(self, stage: str, source: Artifact) -> Attempt | None:
        """Return the newest attempt of a stage that read an artifact of the same kind."""
        made = [one for one in self.manifest.attempts if one.stage == stage and one.status == "done" and one.inputs]
        read = [(one, self.manifest.artifact(one.inputs[0].id)) for one in made]
        return next((one for one, first in reversed(read) if first is not None and first.kind == source.kind), None)

    def _call(self, stage: str, like: Attempt | None, **changes: Any) -> str:
        """Return the command line with the settings of an attempt, and changes of them, which differ from defaults."""
        known = valid_settings(like) if like is not None and like.stage == stage else None
        own = only_known(known or {})
        settings = {name: value for name, value in own.items() if name not in _OF_ONE_CALL} | changes
        config = stage_named(stage).config  # type: ignore[union-attr]
        ordered = {name: settings[name] for name in config.model_fields if name in settings}
        if stage == "rollout":
            ordered["task"] = self.manifest.task
            if changes.get("samples", 1) > 1 and ordered.get("temperature") == 0:  # they would be one dialogue
                del ordered["temperature"]
        return _line(stage, self.run, *config.option_words(ordered))

    def _newest(self, kind: Kind, rollouts: Artifact) -> Artifact | None:
        """Return the newest artifact of a kind that goes back to dialogues and is not stale."""
        done = [one for one in self.manifest.of_kind(kind, "done") if one.id not in self.stale]
        return next((one for one in reversed(done) if rollouts in ancestors(self.manifest, one)), None)

    def _model(self, rollouts: Artifact) -> str | None:
        """Return the model that played dialogues; None where it was none or is not known."""
        agent = RolloutsMeta.of(rollouts).agent or "micro"
        return agent if is_model(agent) else None

    def _has_player(self, rollouts: Artifact) -> bool:
        """Return whether the agent of dialogues can still be asked: it is no actor of the run, or one that is fresh."""
        player = actor_of(self.manifest, rollouts)
        return player is None or player.id not in self.stale

    def _evaluates(self, rollouts: Artifact) -> bool:
        """Return whether dialogues are there to evaluate: on tasks held out, or one of an actor on each task."""
        once = RolloutsMeta.of(rollouts).samples == 1 and actor_of(self.manifest, rollouts) is not None
        return once or rank_of_split(rollouts) > 0

    def _maker(self, artifact: Artifact) -> Attempt | None:
        """Return the attempt that made an artifact; None where it was imported."""
        attempt = self.manifest.attempt(artifact.attempt)
        return attempt if attempt is not None and stage_named(attempt.stage) is not None else None

    def _setting(self, artifact: Artifact, name: str) -> object:
        maker = self._maker(artifact)
        return None if maker is None else only_known(maker.config).get(name)

    def _refused(self, stage: str, source: Artifact) -> bool:
        """Return whether a stage found nothing to make from an input as it is."""
        tried = [one for one in self.manifest.attempts if one.stage == stage and source.ref() in one.inputs]
        return bool(tried) and tried[-1].status == "failed" and not tried[-1].outputs


def _same_tasks(one: Artifact, other: Artifact) -> bool:
    a, b = RolloutsMeta.of(one), RolloutsMeta.of(other)
    digests = {a.tasks_digest, b.tasks_digest} - {None}
    return (a.tasks, a.split, a.best_of) == (b.tasks, b.split, b.best_of) and len(digests) < 2
