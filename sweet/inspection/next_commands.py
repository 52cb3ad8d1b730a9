"""The next commands of a run, from its manifest.

What is unfinished is resumed first. Otherwise one line of work is continued, the newest dialogues that can be learned
from (`step_of`): from the artifact of the pipeline that was made of them last, the next stage follows. Dialogues
of an actor are a further round: critic and actor are trained again, from the model of the first round, on the data of
all rounds (docs/training.md). When an actor has learned from them it is played on tasks for evaluation, like the
dialogues that there are of another agent, and compared with that; then further dialogues of it are suggested.

A command repeats the settings of the round before, or of the artifact that it replaces, and names its inputs where the
stage would choose others. Learning never goes through dialogues on tasks for evaluation. What a stage has refused on
the same inputs is not suggested again: without preferences more samples are played, without pairs more replies ranked.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweet.errors import SweetError
from sweet.inspection.run_lines import RunLines
from sweet.runs.commands import command_of
from sweet.runs.lineage import Staleness, input_of
from sweet.runs.manifest import Artifact, Attempt, Kind, Manifest
from sweet.runs.stages import stage_making, stage_named
from sweet.runs.unfinished import resume_command, to_resume, valid_settings
from sweet.stages.artifacts import own_actor
from sweet.stages.meta import RolloutsMeta, ScoresMeta, TrainedMeta
from sweet.stages.rounds import RECIPE, ROUND_SEEDS
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import TEST, TRAIN, Holdout, load_split, names_no_split

MORE_SAMPLES = 4
"""Dialogues of each task to add where none of a task's is better than another."""

MODEL, FILE = "MODEL", "FILE"
"""Placeholders of what only the user knows."""

PLACEHOLDERS = {MODEL: "the model to train: micro, a directory or a hub id", FILE: "a file of your own"}
"""What to put in their place."""

_OF_ONE_CALL = {
    *("resume", "new", "verify", "compare", "flips", "allow_different"),
    "allow_test",
}
"""Settings that are not repeated: they belong to the call that they were given to."""

HasSplits = Callable[[Artifact], bool]


def suggest_next(
    manifest: Manifest,
    run: str | Path = "RUN",
    stale: Collection[str] | None = None,
    has_splits: HasSplits | None = None,
) -> list[str]:
    """Return the next commands, the most likely first.

    Args:
        manifest: as `Run.manifest` returns it, with dead attempts as interrupted.
        run: the run's name in the commands.
        stale: ids of the stale artifacts; by default determined from the manifest alone.
        has_splits: whether the tasks of these dialogues have a split for training and one for testing; by default
            determined from the dataset.
    """
    if stale is None:
        staleness = Staleness(manifest, lambda artifact: artifact.sha256)
        stale = {artifact.id for artifact in manifest.artifacts if staleness(artifact) is not None}
    if has_splits is None:
        has_splits = splits_of(manifest)
    path = Path(run)
    running = [attempt.stage for attempt in manifest.attempts if attempt.status == "running"]
    loop = [attempt for attempt in manifest.attempts if attempt.stage == "train"]
    if (path / RECIPE).is_file() and "train" not in running and (not loop or loop[-1].status != "done"):
        return [command_line("train", path)]
    lines = _Suggestions(manifest, path, stale, has_splits)
    resumed = [attempt for attempt in to_resume(manifest) if lines.can_resume(attempt)]
    first = [command_line("status", path, "--follow")] if running else []
    first += [resume_command(attempt.stage, path) for attempt in resumed]
    busy = {*running, *(attempt.stage for attempt in resumed)}
    following = [line for line in lines.forward() if line.split()[1] not in busy] if "train" not in running else []
    return list(dict.fromkeys([*first, *following]))


def splits_of(manifest: Manifest) -> HasSplits:
    """Return a function that says whether the tasks of dialogues of this run have a split for training and one for
    testing, by reading the dataset."""

    def has_splits(rollouts: Artifact) -> bool:
        meta = RolloutsMeta.of(rollouts)
        holdout = Holdout(meta.holdout, meta.holdout_validation)
        try:
            kind = task_kind(manifest.task)
            source = meta.tasks or kind.default_tasks()
            if not holdout.given and names_no_split(kind, source):
                return False
            return all(load_split(kind, source, split, holdout).tasks for split in (TRAIN, TEST))
        except SweetError:  # it is not on this machine, or has other splits
            return False

    return has_splits


def command_line(command: str, *words: str | Path) -> str:
    return shlex.join(["sweet", *command.split(), *map(str, words)])


def to_fill_in(commands: Sequence[str]) -> list[str]:
    """Return what is to be put in the place of each placeholder that the commands contain."""
    words = {word for command in commands for word in shlex.split(command)}
    return [f"{name} is {what}." for name, what in PLACEHOLDERS.items() if name in words]


@dataclass(frozen=True)
class StageCall:
    """A call of a stage.

    Attributes:
        settings: by field; None for a default.
    """

    stage: str
    run: Path
    settings: Mapping[str, Any]

    @classmethod
    def like(cls, attempt: Attempt | None, stage: str, run: Path) -> StageCall:
        """Return the call that repeats an attempt on other inputs; with the defaults without an attempt of the stage,
        or where its settings are not valid any more."""
        settings = valid_settings(attempt) if attempt is not None and attempt.stage == stage else None
        return cls(stage, run, {name: value for name, value in (settings or {}).items() if name not in _OF_ONE_CALL})

    def having(self, **changes: object) -> StageCall:
        return replace(self, settings={**self.settings, **changes})

    def reading(self, field: str, wanted: Artifact, default: Artifact | None) -> StageCall:
        """Return the call that reads an artifact, which is named if the stage would read another by default."""
        return self if default is not None and default.id == wanted.id else self.having(**{field: wanted.id})

    @property
    def line(self) -> str:
        """The command line, with the options that differ from the defaults in their order."""
        stage = stage_named(self.stage)
        assert stage is not None
        ordered = {name: self.settings[name] for name in stage.config.model_fields if name in self.settings}
        return command_line(self.stage, self.run, *stage.config.option_words(ordered))


class _Suggestions(RunLines):
    """The next commands, from what the lines of work have."""

    def __init__(self, manifest: Manifest, run: Path, stale: Collection[str], has_splits: HasSplits) -> None:
        super().__init__(manifest, stale)
        self.run, self.has_splits = run, has_splits

    def forward(self) -> list[str]:
        """Return the next commands where nothing is unfinished."""
        done = self.manifest.of_kind("rollouts", "done")
        if not done:
            return [self.call("rollout").line]
        lost = [one for one in done if one.id in self.stale and not one.inputs and not self.replaced(one)]
        lost = [one for one in lost if self.has_player(one)]
        if lost:
            return [self._again(lost[-1])]
        current = [one for one in self.fresh("rollouts") if not self.replaced(one)]
        if not current or not current[-1].rows:
            return [self._again((current or done)[-1])]
        newest = current[-1]
        used = any(self.newest(kind, newest) for kind in ("candidates", "pairs", "actor"))
        if self.newest("scores", newest) is None and not used:
            return [self._eval(newest)]
        learned_from = [one for one in current if not self.for_evaluation(one) and self.has_player(one)]
        if not learned_from:
            return [self._play_to_learn(current)]
        actor = self.newest("actor", learned_from[-1])
        return [self.step_of(learned_from[-1])] if actor is None else self._evaluate(actor, learned_from[-1], current)

    def can_resume(self, attempt: Attempt) -> bool:
        """Return whether all that an attempt read is there as it was, its actors too, and nothing has replaced it."""
        inputs = [(self.manifest.artifact(ref.id), ref) for ref in attempt.inputs]
        fresh = [one for one, ref in inputs if one is not None and one.id not in self.stale and one.ref() == ref]
        if len(fresh) < len(inputs) or any(map(self.replaced, fresh)):
            return False
        named = [own_actor(self.manifest, attempt.config.get(name), attempt.started) for name in ("agent", "model")]
        asked = [self.player(one) for one in fresh if one.kind == "rollouts"] if attempt.stage == "rank" else []
        return not any(actor is not None and actor.id in self.stale for actor in [*named, *asked])

    # Learning

    def step_of(self, rollouts: Artifact) -> str:
        """Return the next step from dialogues towards an actor."""
        rounds = self.rounds(rollouts)
        before = rounds[-2] if len(rounds) > 1 else None
        pairs, candidates = self.newest("pairs", rollouts), self.newest("candidates", rollouts)
        method, reads = self._method_of(rollouts)
        if reads not in ("pairs", "candidates"):
            return self._missing(reads, rounds) or self._train("actor", reads, rounds, method)
        if reads == "candidates" and candidates is not None:
            return self._train("actor", "candidates", rounds, method)
        if pairs is not None:
            return self._missing("pairs", rounds) or self._train("actor", "pairs", rounds, method)
        if candidates is not None:
            return self._pair(candidates, before)
        critic = self.newest("critic", rollouts)
        if critic is not None:
            return self._rank(critic, rollouts, before)
        return self._missing("preferences", rounds) or self._train("critic", "preferences", rounds)

    def _method_of(self, rollouts: Artifact) -> tuple[str, Kind]:
        """Return the method of the actor that played these dialogues, by which the next one is trained, and the kind of
        artifact that it learned from. The rule may be of a package that is not installed here."""
        actor = self.player(rollouts)
        method = None if actor is None else TrainedMeta.of(actor).method
        if actor is None or method in (None, "sweet"):
            return "sweet", "pairs"
        learned = [found for ref in actor.inputs if (found := self.manifest.artifact(ref.id)) is not None]
        return str(method), learned[0].kind if learned else "pairs"

    def _missing(self, kind: Kind, rounds: Sequence[Artifact]) -> str | None:
        """Return the command that makes what a training on all rounds lacks; None if it lacks nothing.

        The newest round needs an artifact of the kind; an earlier one only if it had one that is stale now.
        """
        for rollouts in rounds:
            if self.newest(kind, rollouts) is not None:
                continue
            if rollouts is not rounds[-1] and not self.made(kind, rollouts):
                continue
            if kind == "pairs":
                candidates = self.newest("candidates", rollouts)
                if candidates is not None:
                    return self._pair(candidates, None)
                continue
            scores = self.newest("scores", rollouts)
            if scores is None:
                return self._eval(rollouts)
            if kind == "scores":
                continue
            at = rounds.index(rollouts)
            return self._label(scores, rollouts, rounds[at - 1] if at else None)
        return None

    def _label(self, scores: Artifact, rollouts: Artifact, before: Artifact | None) -> str:
        if self._without_preferences(scores, rollouts):
            samples = (RolloutsMeta.of(rollouts).samples or 0) + MORE_SAMPLES
            maker = self.maker(rollouts)
            changes: dict[str, object] = {"samples": samples}
            if maker is None or maker.stage != "rollout":
                changes["agent"] = MODEL
            return self.call("rollout", maker, **changes).line
        call = self.call("label", self.template("preferences", rollouts, before), from_=None)
        return call.reading("from_", scores, self.default_scores()).line

    def _without_preferences(self, scores: Artifact, rollouts: Artifact) -> bool:
        """Return whether it is known that no task has dialogues of which one is better."""
        if self.refused("label", scores) or RolloutsMeta.of(rollouts).samples == 1:
            return True
        maker = self.maker(scores)
        measured = {} if maker is None else maker.metrics
        rates = measured.get("pass_at_k", measured.get("best_of_k"))
        if not isinstance(rates, dict):
            return False
        one, two = rates.get("1"), rates.get("2")
        return isinstance(one, dict) and one == two

    def _train(self, kind: Kind, source: Kind, rounds: Sequence[Artifact], method: str | None = None) -> str:
        """Return the training of a critic or actor on all rounds, from the model of the first one.

        Args:
            method: of an actor.
        """
        stage = stage_making(kind).name
        before = rounds[-2] if len(rounds) > 1 else None
        template = self.template(kind, rounds[-1], before)
        if template is not None and template.config.get("target", "preference") != "preference":
            template = None
        call = self.call(stage, template, from_=[])
        learned_from = [one for one in (self.newest(source, rollouts) for rollouts in rounds) if one is not None]
        if method not in (None, "sweet"):
            call = call.having(method=method)
        if len(learned_from) > 1:
            call = call.having(from_=[one.id for one in learned_from])
        else:
            default = self.default_scores() if source == "scores" else self.last(source)
            call = call.reading("from_", learned_from[-1], default)
        if not call.settings.get("model") and (len(rounds) > 1 or self.model(rounds[0]) is None):
            call = call.having(model=self.model(rounds[0]) or self.base(rounds) or MODEL)
        return call.line

    def _rank(self, critic: Artifact, rollouts: Artifact, before: Artifact | None, **changes: object) -> str:
        template = self.template("candidates", rollouts, before)
        if template is not None and template.config.get("judge", "critic") != "critic":
            template = None
        inputs: dict[str, object] = dict.fromkeys(("from_", "rollouts", "replies"))
        if not self.made("candidates", rollouts):  # else the template asks the same agent
            inputs |= {"agent": None, "agent_url": self.setting(rollouts, "agent_url") or []}
        call = self.call("rank", template, **{**inputs, **changes})
        if not call.settings.get("agent") and self.model(rollouts) is None and self.player(rollouts) is None:
            call = call.having(agent=self.base([rollouts]) or MODEL)
        call = call.reading("from_", critic, self.last("critic"))
        return call.reading("rollouts", rollouts, self.default_turns(critic)).line

    def _pair(self, candidates: Artifact, before: Artifact | None) -> str:
        rollouts = input_of(self.manifest, candidates, "rollouts")
        critic = input_of(self.manifest, candidates, "critic")
        if rollouts is not None and critic is not None and self.refused("pair", candidates):
            replies = 2 * int(str(self.setting(candidates, "candidates") or 16))
            return self._rank(critic, rollouts, before, candidates=replies)
        template = None if rollouts is None else self.template("pairs", rollouts, before)
        return self.call("pair", template, from_=None).reading("from_", candidates, self.last("candidates")).line

    # Playing and evaluating

    def _play_to_learn(self, current: Sequence[Artifact]) -> str:
        """Return the rollout of training tasks, like the dialogues on tasks for evaluation that there are."""
        others = [one for one in current if self.player(one) is None] or list(current)
        like = others[-1]
        samples = max(MORE_SAMPLES, RolloutsMeta.of(like).samples or 1)
        call = self.call("rollout", self.maker(like), split="train", samples=samples)
        if self.maker(like) is None:
            call = call.having(agent=MODEL)
        elif not self.has_splits(like):
            call = call.having(tasks=FILE)
        return call.line

    def _evaluate(self, actor: Artifact, learned_from: Artifact, current: Sequence[Artifact]) -> list[str]:
        """Return what follows the training of an actor: its evaluation, that of the first agent, the comparison."""
        played = [one for one in current if self.plays(actor, one) and self.for_evaluation(one)]
        played.sort(key=self.held_out)
        baselines = [one for one in current if self.player(one) is None]
        if not played:
            return [self._play(actor, learned_from, baselines)]
        ours = self.newest("scores", played[-1])
        if ours is None:
            return [self._eval(played[-1])]
        shown = [command_line(command, self.run) for command in ("report", "view")]
        again = self._next_round(actor, learned_from)
        same = [one for one in baselines if self.same_tasks(one, played[-1])]
        if not same:
            first = self.rounds(learned_from)[0]
            base = self.model(first)
            if base is None:
                return [*shown, again]
            urls = self.setting(first, "agent_url") or []
            return [self.call("rollout", self.maker(played[-1]), agent=base, agent_url=urls).line]
        theirs = self.newest("scores", same[-1])
        if theirs is None:
            return [self._eval(same[-1])]
        if ScoresMeta.of(theirs).scorer != ScoresMeta.of(ours).scorer:
            return [self._eval(played[-1], self.maker(theirs))]
        sides = [f"{self.run}:{scores.id}" for scores in (theirs, ours)]
        return [command_line("compare", *sides), *shown, again]

    def _play(self, actor: Artifact, learned_from: Artifact, baselines: Sequence[Artifact]) -> str:
        """Return the rollout of an actor on tasks for evaluation, or else on those of the first round."""
        agent = {"agent": str(self.run / actor.path), "agent_url": []}
        held_out = sorted((one for one in baselines if self.held_out(one)), key=self.held_out)
        if held_out:
            return self.call("rollout", self.maker(held_out[-1]), **agent).line
        first = self.rounds(learned_from)[0]
        maker = self.maker(first)
        split = {"split": "test"} if maker is None or self.has_splits(first) else {}
        return self.call("rollout", maker, **agent, samples=1, **split).line

    def _next_round(self, actor: Artifact, learned_from: Artifact) -> str:
        samples = max(2, RolloutsMeta.of(learned_from).samples or MORE_SAMPLES)
        seed = int(str(self.setting(learned_from, "seed") or 0)) + ROUND_SEEDS
        agent = str(self.run / actor.path)
        changes = {"agent": agent, "agent_url": [], "samples": samples, "seed": seed, "split": "train"}
        return self.call("rollout", self.maker(learned_from), **changes).line

    def _eval(self, rollouts: Artifact, like: Attempt | None = None) -> str:
        """Return the evaluation of dialogues, with the settings of the newest one: only like scores are compared."""
        made = [one for one in self.manifest.attempts if one.stage == "eval" and one.status == "done"]
        by_critic = ("critic", "reference_context", "turn_tokens")
        chooses = dict.fromkeys(("from_", "best_of_by", *by_critic, "judge_model", "judge_prompt"))
        call = self.call("eval", like or (made[-1] if made else None), **chooses, judge_url=[])
        return call.reading("from_", rollouts, self.last("rollouts")).line

    def _again(self, artifact: Artifact) -> str:
        maker = self.maker(artifact)
        return command_line("data import", FILE, self.run) if maker is None else command_of(maker, self.run)

    def call(self, stage: str, like: Attempt | None = None, **changes: object) -> StageCall:
        """Return a call of a stage with the settings of an attempt, and changes of them."""
        if stage == "rollout":
            changes = {"task": self.manifest.task, **changes}
        return StageCall.like(like, stage, self.run).having(**changes)
