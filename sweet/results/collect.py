"""Collect the facts of a run, from which a page, a Markdown text or a JSON object is made.

Everything is read from the run, and the same run gives the same report. A run in any state has a report: unfinished
artifacts, failed attempts, and damaged or missing files are not fatal but listed in `Report.problems`. Each file of a
run is read once, and only some values of every row are kept (`sweet.results.row_reader`).
"""

from __future__ import annotations

from collections.abc import Iterator

from sweet.errors import InputError, SweetError
from sweet.regular import check_any
from sweet.results import citation, dialogue_facts, evaluation_facts, row_reader
from sweet.results.facts import (
    AdvantagesFact,
    ComparisonFact,
    DialoguesFact,
    Headline,
    Rate,
    Report,
    Sample,
    ScoresFact,
    words,
)
from sweet.results.lineage_facts import Names, artifact_facts, attempt_fact, links, method
from sweet.results.training_facts import trainings
from sweet.runs.lineage import input_of
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.scoring.results.evaluation import REWARD, Evaluation
from sweet.scoring.results.trained_on import TrainingRecord, trained_on
from sweet.stages.prices import Spending, spending
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind


def collect(run: Run) -> Report:
    """Collect the report of a run. Nothing is written."""
    return _Collection(run).report()


_ScoredRollouts = dict[str, tuple[dialogue_facts.ScoredDialogues, str | None]]
"""The dialogues of each rollouts artifact, with the id of the scores that contain their rewards."""


class _Collection:
    """Collects one report. Rows of scores are cached, because several facts are made of them."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.manifest = run.manifest()
        self.names = Names(self.manifest)
        self.problems: list[str] = []
        self.kind = self._kind()
        self.rule = None if self.kind is None else self.kind.rewards
        self.record = None if self.kind is None else TrainingRecord(self.kind)
        self.artifacts = {fact.id: fact for fact in artifact_facts(run, self.manifest)}
        self._scores: dict[str, row_reader.Scores] = {}
        self._unreadable: set[str] = set()

    def _kind(self) -> TaskKind | None:
        try:
            return task_kind(self.manifest.task)
        except SweetError as error:
            self.problems.append(f"{error} Rewards are reported unchanged.")
            return None

    def report(self) -> Report:
        manifest = self.manifest
        for artifact in manifest.artifacts:
            self._check(artifact)
        results = [self._result(artifact) for artifact in manifest.artifacts if artifact.kind == "scores"]
        comparisons = list(self._comparisons())
        ranked = {artifact.id: self._ranked(artifact) for artifact in self._existing("candidates")}
        rollouts = {artifact.id: artifact for artifact in self._existing("rollouts")}
        played = {id: self._with_scores(artifact) for id, artifact in rollouts.items()}
        ended = [attempt.finished for attempt in manifest.attempts if attempt.finished is not None]
        headline = _headline(results, comparisons)
        report = Report(
            run=self.run.path.absolute().name,
            task=manifest.task,
            created=manifest.created,
            ended=max(ended, default=None),
            versions=citation.versions([words(attempt.environment.get("sweet")) for attempt in manifest.attempts]),
            method=method(manifest),
            headline=headline,
            artifacts=list(self.artifacts.values()),
            links=list(links(manifest, self.names)),
            attempts=[attempt_fact(attempt, self.names) for attempt in manifest.attempts],
            results=results,
            comparisons=comparisons,
            training=list(trainings(self.run, manifest, self.problems)),
            dialogues=[self._dialogues(rollouts[id], *one) for id, one in played.items()],
            advantages=[self._advantages(id, one) for id, one in ranked.items()],
            samples=list(self._samples(headline, played, ranked)),
            spent=self._spent(),
            problems=self.problems,
        )
        return report.model_copy(update={"citation": citation.paragraph(report), "bibtex": citation.bibtex(report)})

    def _spent(self) -> Spending | None:
        try:
            return spending(self.run, self.manifest)
        except SweetError as error:
            self.problems.append(str(error))
            return None

    def _check(self, artifact: Artifact) -> None:
        """Record why an artifact cannot be read, or that it is not as it was finished; its rows are used then."""
        path = self.run.file(artifact)
        readable = False
        try:
            check_any(path)
            readable = path.exists()
            if not readable:
                self.problems.append(f"{artifact.id}: {artifact.path} is missing.")
            elif artifact.status == "done":
                self.run.verify(artifact, sums=artifact.rows is not None)
        except InputError as error:
            self.problems.append(str(error))
        if not readable:
            self._unreadable.add(artifact.id)

    def _existing(self, kind: str) -> list[Artifact]:
        """Return the artifacts of a kind whose files can be read, in the manifest's order."""
        return [one for one in self.manifest.artifacts if one.kind == kind and one.id not in self._unreadable]

    def _root(self, artifact: Artifact | None) -> str | None:
        """Return the id of the rollouts that an artifact was made from."""
        rollouts = None if artifact is None else input_of(self.manifest, artifact, "rollouts")
        return None if rollouts is None else rollouts.id

    def _rows_of(self, scores: Artifact) -> row_reader.Scores:
        if scores.id not in self._scores:
            figures = {} if self.kind is None else self.kind.metrics
            path = None if scores.id in self._unreadable else self.run.file(scores)
            self._scores[scores.id] = row_reader.scores(path, figures, self.problems)
        return self._scores[scores.id]

    def _result(self, artifact: Artifact) -> ScoresFact:
        """Return the recorded metrics of an evaluation; of an unfinished one, metrics of its rows."""
        known = self.artifacts[artifact.id]
        fact = evaluation_facts.scores_fact(self.manifest, artifact, known, self.names, self._trained_on(artifact))
        if fact.rates:
            return fact
        rows = self._rows_of(artifact)
        values = rows.values
        rates = {name: rate for name, rate in values.rates().items() if rate is not None}
        if len(rates) > 1:
            del rates[REWARD]  # a metric of the kind covers it
        update = {
            "rates": [Rate(name=name, mean=rate.mean, low=rate.low, high=rate.high) for name, rate in rates.items()],
            "trajectories": len(rows.by_id),
            "tasks": len(values.ids.keys() | values.invalid),
            "outcomes": dialogue_facts.outcomes(rows.by_id),
        }
        return fact.model_copy(update=update)

    def _trained_on(self, artifact: Artifact) -> int | None:
        """Return how many of the tasks of scores their agent was trained on; None where this is not known."""
        if self.record is None:
            return None
        tasks = self._rows_of(artifact).values
        evaluation = Evaluation(self.run, self.manifest, artifact)
        return trained_on(evaluation, self.record, tasks.ids.keys() | tasks.invalid)

    def _comparisons(self) -> Iterator[ComparisonFact]:
        for before, after in evaluation_facts.before_and_after(self.manifest, self.names):
            former, latter = (Evaluation(self.run, self.manifest, scores) for scores in (before, after))
            values = self._rows_of(before).values, self._rows_of(after).values
            try:
                found = evaluation_facts.comparison(former, latter, values)
            except (SweetError, OSError) as error:
                self.problems.append(f"{after.id} is not compared with {before.id}: {error}")
            else:
                yield from () if found is None else (found,)

    def _with_scores(self, rollouts: Artifact) -> tuple[dialogue_facts.ScoredDialogues, str | None]:
        """Return the dialogues of an artifact, and the newest scores that were made from them."""
        evaluations = [one for one in self.manifest.of_kind("scores", "done") if self._root(one) == rollouts.id]
        scores = evaluations[-1] if evaluations else None
        read = row_reader.dialogues(self.run.file(rollouts), self.problems)
        scored = {} if scores is None else self._rows_of(scores).by_id
        return dialogue_facts.ScoredDialogues(read, scored), scores.id if scores else None

    def _dialogues(
        self, rollouts: Artifact, played: dialogue_facts.ScoredDialogues, scores: str | None
    ) -> DialoguesFact:
        return DialoguesFact(
            rollouts=rollouts.id,
            scores=scores,
            agent=self.names.agent(rollouts),
            dataset=self.names.dataset(rollouts),
            count=len(played.dialogues),
            measure=dialogue_facts.measure(self.rule),
            ends=dialogue_facts.ends(played.dialogues),
            human_faults=dialogue_facts.human_faults(played.dialogues),
            outcomes=dialogue_facts.outcomes(played.scores),
            by=dialogue_facts.success_by(played, self.rule),
        )

    def _ranked(self, candidates: Artifact) -> row_reader.Ranked:
        return row_reader.ranked(self.run.file(candidates), self.problems)

    def _advantages(self, id: str, ranked: row_reader.Ranked) -> AdvantagesFact:
        return AdvantagesFact(
            candidates=id,
            rollouts=self._root(self.manifest.artifact(id)),
            unit=dialogue_facts.unit(ranked),
            turns=dialogue_facts.by_turn(ranked),
        )

    def _samples(
        self, headline: Headline | None, played: _ScoredRollouts, ranked: dict[str, row_reader.Ranked]
    ) -> Iterator[Sample]:
        """Choose samples of the headline's dialogues (else the newest), and of ranked dialogues."""
        scores = self.manifest.artifact(headline.scores) if headline else None
        about = self._root(scores) if scores else None
        judged: dict[str | None, set[str]] = {}
        for id, found in ranked.items():
            judged.setdefault(self._root(self.manifest.artifact(id)), set()).update(found.trajectories)
        first = about if about in played else next(reversed(played), None)
        for id in sorted(played, key=lambda one: one != first):
            if id == first:
                yield from dialogue_facts.samples(id, played[id][0], judged.get(id, ()))
            elif id in judged:
                yield from dialogue_facts.ranked_samples(id, played[id][0], judged[id])


def _headline(found: list[ScoresFact], comparisons: list[ComparisonFact]) -> Headline | None:
    """Return the rate of the trained actor if it was compared, else of the newest evaluation; stale ones come last."""
    rated = [result for result in found if result.rates]
    after = {comparison.after for comparison in comparisons}
    order = sorted(rated, key=lambda one: (one.id in after, one.status == "done", one.stale is None))
    return Headline(scores=order[-1].id, rate=order[-1].rates[0]) if order else None
