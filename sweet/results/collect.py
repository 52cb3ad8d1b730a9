"""Collect the facts of a run, from which a page, a Markdown text or a JSON object is made.

Everything is read from the run, and the same run gives the same report. A run in any state has a report: unfinished
artifacts, failed attempts, and damaged or missing files are not fatal but listed in `Report.problems`. Only some values
of a row are kept: those of the index (`sweet.runs.index`), and of scores the values of the metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from sweet.errors import InputError, SweetError
from sweet.inspection.status import report as status
from sweet.inspection.status_report import AttemptStatus
from sweet.installation import VERSION
from sweet.json_value import JsonValue
from sweet.regular import check_any
from sweet.results import evaluation_facts, pages
from sweet.results.facts import AttemptFact, ComparisonFact, DialoguesFact, Headline, Report, ScoresFact, words
from sweet.results.training_facts import trainings
from sweet.runs.index import ROLLOUTS, SCORES, E, Form, Index
from sweet.runs.jsonl import read_jsonl
from sweet.runs.lineage import made_of
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run
from sweet.runs.stages import stage_named
from sweet.scoring.results.evaluation import Evaluation, Values
from sweet.scoring.results.run_result import RunResult, before_and_after, played_by, result_of, rounds_of
from sweet.scoring.results.trained_on import TrainingRecord, trained_on
from sweet.stages.artifacts import own_actor
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Score

RUN = "RUN"
"""Stands for the run's path in commands and names of agents."""
MODELS = ("agent", "model", "reference")
"""Settings whose value may be an actor of the run."""
MOST_NAMES = 12
"""Most names that are counted one by one."""


def collect(run: Run) -> Report:
    """Collect the report of a run. Nothing is written."""
    return _Collection(run).report()


class _Collection:
    """Collects one report. Values of scores are cached, because several facts are made of them."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.manifest = run.manifest()
        self.problems: list[str] = []
        self.kind = self._kind()
        self.record = None if self.kind is None else TrainingRecord(self.kind)
        self.status = status(run)
        self._values: dict[str, Values] = {}
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
        result = result_of(manifest, {one.id for one in self.status.artifacts if one.stale is not None})
        results = [self._result(artifact) for artifact in manifest.artifacts if artifact.kind == "scores"]
        comparisons = list(self._comparisons(result))
        self.problems += [self.status.problem] if self.status.problem is not None else []
        ended = [attempt.finished for attempt in manifest.attempts if attempt.finished is not None]
        report = Report(
            run=self.run.name,
            task=manifest.task,
            created=manifest.created,
            ended=max(ended, default=None),
            versions=sorted({words(one.environment.get("sweet")) for one in manifest.attempts} - {""}) or [VERSION],
            method=method(manifest),
            headline=None if result is None else _headline(manifest, results, result),
            rounds={} if (train := rounds_of(manifest)[0]) is None else train.metrics,
            artifacts=self.status.artifacts,
            attempts=[
                attempt_fact(known, attempt, manifest)
                for known in self.status.attempts
                if (attempt := manifest.attempt(known.id)) is not None
            ],
            results=results,
            comparisons=comparisons,
            training=list(trainings(self.run, manifest, self.problems)),
            dialogues=[
                self._dialogues(one)
                for one in manifest.artifacts
                if one.kind == "rollouts" and one.id not in self._unreadable
            ],
            spent=self.status.spent,
            problems=self.problems,
        )
        cited = "" if report.headline is None else pages.plain("citation.j2", report=report)
        return report.model_copy(update={"citation": cited})

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

    def _values_of(self, scores: Artifact) -> Values:
        """Return the values of scores, of a damaged file those before the damage."""
        if scores.id not in self._values:
            found = self._values[scores.id] = Values({} if self.kind is None else self.kind.metrics)
            try:
                for score in () if scores.id in self._unreadable else read_jsonl(self.run.file(scores), Score):
                    found.add(score)
            except (SweetError, OSError) as error:
                self.problems.append(f"{error} The rows before it are used.")
        return self._values[scores.id]

    def _entries(self, artifact: Artifact, form: Form[E]) -> list[E]:
        """Return what a list shows of the rows of an artifact; nothing of a damaged file."""
        try:
            return Index(self.run.file(artifact), form).entries
        except (InputError, OSError) as error:
            self.problems.append(str(error))
            return []

    def _result(self, artifact: Artifact) -> ScoresFact:
        """Return the recorded metrics of an evaluation; of an unfinished one, metrics of its rows."""
        stale = next((one.stale for one in self.status.artifacts if one.id == artifact.id), None)
        fact = evaluation_facts.scores_fact(self.manifest, artifact, stale, self._trained_on(artifact))
        if fact.rates:
            return fact
        values = self._values_of(artifact)
        counts = {"trajectories": sum(map(len, values.ids.values())), "tasks": len(values.ids.keys() | values.invalid)}
        return fact.model_copy(update={"rates": evaluation_facts.rates(values), **counts})

    def _trained_on(self, artifact: Artifact) -> int | None:
        """Return how many of the tasks of scores their agent was trained on; None where this is not known."""
        if self.record is None:
            return None
        tasks = self._values_of(artifact)
        evaluation = Evaluation(self.run, self.manifest, artifact)
        return trained_on(evaluation, self.record, tasks.ids.keys() | tasks.invalid)

    def _comparisons(self, result: RunResult | None) -> Iterator[ComparisonFact]:
        """Yield that of the result, and those of all actors with the agents that they were trained from."""
        first = [] if result is None or result.before is None else [(result.before, result.scores)]
        pairs = {(one.id, other.id): (one, other) for one, other in [*first, *before_and_after(self.manifest)]}
        for before, after in pairs.values():
            former, latter = (Evaluation(self.run, self.manifest, scores) for scores in (before, after))
            values = self._values_of(before), self._values_of(after)
            try:
                found = evaluation_facts.comparison(former, latter, values)
            except (SweetError, OSError) as error:
                self.problems.append(f"{after.id} is not compared with {before.id}: {error}")
            else:
                yield from () if found is None else (found,)

    def _dialogues(self, rollouts: Artifact) -> DialoguesFact:
        scores = next(made_of(self.manifest, "scores", rollouts), None)
        played = self._entries(rollouts, ROLLOUTS)
        scored = [] if scores is None or scores.id in self._unreadable else self._entries(scores, SCORES)
        return DialoguesFact(
            rollouts=rollouts.id,
            scores=scores.id if scores else None,
            agent=evaluation_facts.agent(self.manifest, rollouts),
            dataset=evaluation_facts.dataset(rollouts),
            count=len(played) or rollouts.rows or 0,
            ends=falling(one.ended for one in played),
            human_faults=falling(one.fault for one in played if one.fault),
            outcomes=falling(one.outcome for one in scored),
        )


def attempt_fact(status: AttemptStatus, attempt: Attempt, manifest: Manifest) -> AttemptFact:
    config = _portable(attempt, manifest)
    stage = stage_named(attempt.stage)
    defaults = None if stage is None else stage.config.default_settings()
    changed = {key: value for key, value in config.items() if defaults is None or value != defaults.get(key)}
    command = None if stage is None else stage.command(config, RUN)
    return AttemptFact(
        **status.model_dump(),
        changed=changed,
        defaults={key: value for key, value in config.items() if key not in changed},
        environment=dict(_flat(attempt.environment)),
        command=command,
    )


def _portable(attempt: Attempt, manifest: Manifest) -> dict[str, JsonValue]:
    """Return the settings with the actors of the run as RUN/…, independent of the run's path."""
    config = attempt.config
    actors = {name: own_actor(manifest, config.get(name), attempt) for name in MODELS}
    return config | {name: f"{RUN}/{actor.path}" for name, actor in actors.items() if actor is not None}


def _flat(environment: dict[str, JsonValue]) -> Iterator[tuple[str, str]]:
    for key, value in environment.items():
        if isinstance(value, dict):
            yield from ((inner, words(version)) for inner, version in value.items())
        else:
            yield key, words(value)


def method(manifest: Manifest) -> str:
    """Describe the trained critic and actor in a few words."""
    parts = []
    for kind, key in (("critic", "variant"), ("actor", "algorithm")):
        made = manifest.of_kind(kind, "done")
        if made and made[-1].meta.get(key) is not None:
            protocol = words(made[-1].meta.get("protocol"))
            parts.append(f"{kind} {words(made[-1].meta[key])}" + (f" (protocol {protocol})" if protocol else ""))
    return ", ".join(parts)


def falling(names: Iterable[str]) -> dict[str, int]:
    """Count names, the most frequent first; those after the first dozen are counted together as others."""
    counted = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
    rest = sum(number for _, number in counted[MOST_NAMES:])
    return dict(counted[:MOST_NAMES]) | ({"others": rest} if rest else {})


def _headline(manifest: Manifest, found: list[ScoresFact], result: RunResult) -> Headline | None:
    """Return the rate of the result; where its rate is not known, that of the newest evaluation."""
    wanted = result.scores.id
    chosen = max((one for one in reversed(found) if one.rates), key=lambda one: one.id == wanted, default=None)
    if chosen is None:
        return None
    scores = manifest.artifact(chosen.id)
    before = result.before if chosen.id == wanted else None
    return Headline(
        scores=chosen.id,
        rate=chosen.rates[0],
        of="" if scores is None else played_by(manifest, scores),
        before=None if before is None else before.id,
    )
