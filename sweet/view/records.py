"""Join the data of a run's trajectories: dialogue, score, ranked candidates, pairs.

A large run does not fit in memory as objects, and a table needs only a few values of each row. So a `Summary` is made
from the indexes of the artifacts (sweet.runs.index), and a whole row is read on demand; the indexes of candidates and
pairs are not opened earlier. The manifest determines which files belong together: the newest scores, candidates and
pairs that descend from the viewed rollouts.

Rollouts that are still being written can be viewed, as they are when they are opened.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from sweet.errors import InputError, UsageError
from sweet.hints import stage
from sweet.learn.rows import CandidateRow, Pair
from sweet.runs.index import CANDIDATES, PAIRS, ROLLOUTS, SCORES, E, Form, Index, RolloutEntry, ScoreEntry
from sweet.runs.jsonl import parse_row
from sweet.runs.lineage import made_of
from sweet.runs.manifest import Artifact, Kind, Manifest
from sweet.runs.run import Run
from sweet.scoring.results.run_result import played_by, result_of
from sweet.tasks.scores import Score, with_turn_rewards
from sweet.tasks.trajectory import FAULTS, Trajectory
from sweet.units import count

R = TypeVar("R", bound=BaseModel)


class Summary(NamedTuple):
    """The row of one trajectory in a table.

    Attributes:
        ended: how the dialogue ended (answered, out_of_turns, …).
        outcome: how its answer scored (passed, failed, …); None if it was not scored.
        tokens: sampled by the agent; None if they were not counted.
        fault: what the simulated human did wrong (refusal, …), else the dialogue's fault (deadline, …); empty
            without a fault.
        sample, seed: with the task they identify the dialogue; seed is None for imported dialogues.
        request: the beginning of what the human asks for, on one line.
    """

    id: str
    task_id: str
    ended: str
    outcome: str | None
    reward: float | None
    passed: int | None
    total: int | None
    turns: int
    tokens: int | None
    seconds: float | None
    fault: str
    sample: int
    seed: int | None
    request: str = ""


@dataclass(frozen=True)
class Record:
    """All data about one trajectory, which has the rewards of turns of its score. `ranked` and `pairs` are by turn."""

    trajectory: Trajectory
    score: Score | None = None
    ranked: dict[int, CandidateRow] = field(default_factory=dict)
    pairs: dict[int, list[Pair]] = field(default_factory=dict)

    @property
    def reward(self) -> float | None:
        return self.trajectory.reward if self.score is None else self.score.reward

    def advantage(self, turn: int) -> float | None:
        """Return the advantage that the judge gave to the actual reply of this turn; None if there is none."""
        taken = self.ranked[turn].taken if turn in self.ranked else None
        return None if taken is None else taken.advantage

    @property
    def scale(self) -> float:
        """The largest absolute advantage in the dialogue: the value of a full bar."""
        candidates = [c.advantage for turn in self.ranked.values() for c in (*turn.candidates, turn.taken) if c]
        return max(map(abs, candidates), default=0.0)


class Records:
    """The trajectories of one rollouts artifact, and the data that was made from them.

    Attributes:
        rollouts: the named artifact, else the one that is being written, else those of the result of `sweet train`,
            unless there are newer ones of another stage, else the newest finished one, else the newest unfinished one.
        played_by: the agent of the rollouts, and its tasks.
        running: the rollouts are being written now.
    """

    def __init__(self, run: Run, from_: str | None = None) -> None:
        self.run = run
        manifest = run.manifest()
        self.rollouts = _select_rollouts(run, manifest, from_)
        self.path = run.file(self.rollouts)
        self.played_by = played_by(manifest, self.rollouts)
        self.running = _is_running(manifest, self.rollouts)
        made: tuple[Kind, ...] = ("scores", "candidates", "pairs")
        self.scores, self.candidates, self.pairs = (next(made_of(manifest, kind, self.rollouts), None) for kind in made)
        if self.rollouts.status == "partial":  # an online training scores what it plays
            partial_scores = manifest.of_kind("scores", "partial")
            self.scores = next((item for item in partial_scores if item.attempt == self.rollouts.attempt), None)
        partial = (artifact for kind in made for artifact in made_of(manifest, kind, self.rollouts, "partial"))
        self._made_now = {artifact.kind for artifact in partial if _is_running(manifest, artifact)}
        self._newest = [self.rollouts] == manifest.of_kind("rollouts", "done")[-1:]
        self._dialogues = _Rows(run, self.rollouts, ROLLOUTS, written=self.running)
        self._scores = _Rows(run, self.scores, SCORES, written=self.rollouts.status == "partial")
        self._candidates = _Rows(run, self.candidates, CANDIDATES)
        self._pairs = _Rows(run, self.pairs, PAIRS)
        self._summaries: list[Summary] | None = None

    @property
    def state(self) -> str:
        """The id of the scores; else what there is instead: unfinished rollouts, or the command that scores them."""
        if self.rollouts.status == "partial":
            return "running" if self.running else "unfinished"
        return self.scores.id if self.scores else self._unmade("scores", "scored", "eval", "from_")

    def why_no_candidates(self) -> str:
        """Say why a dialogue has no candidates."""
        ranked = len({entry.id for entry in self._candidates.entries})
        if ranked:
            return f"no turn of this dialogue was ranked; {count(ranked, 'dialogue')} here have candidates"
        return self._unmade("candidates", "ranked", "rank", "rollouts")

    def _unmade(self, kind: Kind, done: str, command: str, option: str) -> str:
        """Say that nothing of a kind was made of the rollouts: it is being made, or the command that makes it."""
        if kind in self._made_now:
            return f"being {done}"
        return f"not {done}: {stage(command, **({} if self._newest else {option: self.rollouts.id}))}"

    def summaries(self) -> list[Summary]:
        """Return the summaries in the order of the file.

        Raises:
            InputError: a line is damaged, or a file is missing.
        """
        if self._summaries is None:
            scores = {entry.id: entry for entry in self._scores.entries}
            self._summaries = [_summary(entry, scores.get(entry.id)) for entry in self._dialogues.entries]
        return self._summaries

    def record(self, summary: Summary) -> Record:
        """Read all data about one trajectory.

        Raises:
            InputError: a row is damaged, or no longer at its position.
        """
        name = summary.id
        played = self._dialogues.of(name, Trajectory)
        if not played:
            raise InputError(f"The dialogue {name!r} is missing from its file.", path=self.path)
        score = next(iter(self._scores.of(name, Score)), None)
        ranked = {row.turn: row for row in self._candidates.of(name, CandidateRow)}
        pairs: dict[int, list[Pair]] = {}
        for pair in self._pairs.of(name, Pair):
            pairs.setdefault(pair.turn, []).append(pair)
        rewarded = played[0] if score is None else with_turn_rewards(played[0], score)
        return Record(rewarded, score, ranked, pairs)

    def find(self, name: str) -> Summary:
        """Return the trajectory with this id, or with the only id that begins with it.

        Raises:
            UsageError: there is none, or there are several; the hint has the closest ids.
        """
        summaries = self.summaries()
        for summary in summaries:
            if summary.id == name:
                return summary
        beginning = [summary for summary in summaries if summary.id.startswith(name)]
        if len(beginning) == 1:
            return beginning[0]
        elsewhere = None if beginning else self._elsewhere(name)
        if elsewhere is not None:
            raise UsageError(
                f"The dialogue {name!r} is not in {self.rollouts.id} but in {elsewhere}.",
                where=self.path,
                fix=f"--from {elsewhere} --id {name}",
            )
        ids = [summary.id for summary in summaries]
        near = [s.id for s in beginning[:3]] or difflib.get_close_matches(name, ids, n=3, cutoff=0.4) or ids[:1]
        what = "Several dialogues begin with" if beginning else "There is no dialogue"
        raise UsageError(
            f"{what} {name!r} in {self.rollouts.id}.", where=self.path, fix=" or ".join(f"--id {i}" for i in near)
        )

    def _elsewhere(self, name: str) -> str | None:
        """Return the newest other rollouts of the run that contain this trajectory."""
        for other in reversed(self.run.manifest().of_kind("rollouts", "done")):
            path = self.run.file(other)
            available = other.id != self.rollouts.id and path.exists()
            if available and any(entry.id == name for entry in Index(path, ROLLOUTS).entries):
                return other.id
        return None


class _Rows(Generic[E]):
    """The rows of an artifact by trajectory, indexed when they are asked for; empty without an artifact.

    Args:
        written: a stage is appending to it.
    """

    def __init__(self, run: Run, artifact: Artifact | None, form: Form[E], *, written: bool = False) -> None:
        self._path = None if artifact is None else run.file(artifact)
        self._form, self._written = form, written

    @cached_property
    def _index(self) -> Index[E] | None:
        if self._path is None or (self._written and not self._path.exists()):  # its first dialogue has not ended yet
            return None
        return Index(self._path, self._form)

    @property
    def entries(self) -> list[E]:
        return [] if self._index is None else self._index.entries

    @cached_property
    def _by_id(self) -> dict[str, list[E]]:
        by_id: dict[str, list[E]] = {}
        for entry in self.entries:
            by_id.setdefault(entry.id, []).append(entry)
        return by_id

    def of(self, name: str, model: type[R]) -> list[R]:
        """Return the rows about one trajectory in the order of the file."""
        index = self._index
        if index is None:
            return []
        return [parse_row(index.line(entry), model, index.path) for entry in self._by_id.get(name, ())]


def _select_rollouts(run: Run, manifest: Manifest, from_: str | None) -> Artifact:
    """Return the rollouts to view.

    Raises:
        UsageError: there are none, or their file is missing.
    """
    named = None if from_ is None else manifest.artifact(from_)
    if named is not None and named.kind == "rollouts" and named.status == "partial":
        unfinished = [named]
    elif from_ is not None:
        unfinished = []
    else:
        partial = manifest.of_kind("rollouts", "partial")
        running = [artifact for artifact in partial if _is_running(manifest, artifact)]
        done = manifest.of_kind("rollouts", "done")
        unfinished = running or ([] if done else partial)
        result = result_of(manifest)
        if done and result is not None and result.rounds is not None and done[-1].id in result.rounds.artifacts:
            from_ = result.rollouts.id
    for artifact in reversed(unfinished):
        if _is_running(manifest, artifact) or run.file(artifact).exists():
            return artifact
    return run.find("rollouts", from_, needed_by="view", as_it_is=True)


def _is_running(manifest: Manifest, artifact: Artifact) -> bool:
    """Return whether the artifact is being written now."""
    maker = manifest.attempt(artifact.attempt)
    return artifact.status == "partial" and maker is not None and maker.status == "running"


def _summary(entry: RolloutEntry, score: ScoreEntry | None) -> Summary:
    values: dict[str, Any] = {name: value for name, value in entry._asdict().items() if name in Summary._fields}
    values |= dict.fromkeys(("outcome", "passed", "total"))
    values["fault"] = entry.fault or (entry.ended if entry.ended in FAULTS else "")
    if score is not None:
        values |= {name: getattr(score, name) for name in ("outcome", "reward", "passed", "total")}
    return Summary(**values)
