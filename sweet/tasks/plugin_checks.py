"""Proxies for the task kind and the scorer of another package, which report errors of the package's code as its own.

A proxy forwards every attribute and method that `TaskKind` or `TrajectoryScorer` declares. An exception that the
plug-in raises becomes a `SweetError` with the method, the package and the line. A value that it returns is compared
with the declared type, so that a wrong one is reported here and not three stages later. Errors of `sweet.errors` are
meant for the user and pass unchanged.
"""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast, get_type_hints

from pydantic import ValidationError

from sweet.errors import SweetError, UsageError, described, first_line
from sweet.plugins import Plugin
from sweet.tasks.base import Task
from sweet.tasks.declared_types import declared, mismatch
from sweet.tasks.findings import Checked, Finding
from sweet.tasks.kind import ScriptedAgent, TaskKind
from sweet.tasks.scores import METRICS, SCORER_OPTIONS, AnswerScorer, Metric, Score, ScoringRequest, TrajectoryScorer
from sweet.tasks.trajectory import Trajectory


def checked_kind(kind: TaskKind, plugin: Plugin) -> TaskKind:
    """Return the kind of a plug-in behind a proxy.

    Raises:
        UsageError: an attribute of the kind has a wrong type or value.
    """
    _check_attributes(kind, plugin)
    return cast(TaskKind, _CheckedKind(kind, _Reporter(kind, str(plugin))))


def place_of_failure(error: BaseException, source: Path | None = None) -> str | None:
    """Return the file and line that raised: the innermost frame, in the folder or file `source` if one is given."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if source is None or Path(frame.filename).is_relative_to(source)]
    return f"{inside[-1].filename}, line {inside[-1].lineno}" if inside else None


def _check_attributes(kind: TaskKind, plugin: Plugin) -> None:
    def error(problem: str) -> UsageError:
        return UsageError(
            f"The task kind {plugin.name!r} ({plugin}) {problem}.",
            where=f"entry point {plugin.name} = {plugin.point.value}",
            fix=f"correct {type(kind).__name__} in {plugin.package}",
        )

    for name in get_type_hints(TaskKind):
        if name.startswith("_"):
            continue
        try:
            value = getattr(kind, name, None)
        except (Exception, SystemExit) as raised:
            raise error(f"raised {_described(raised)} in its attribute {name}") from raised
        if problem := mismatch(value, declared(TaskKind, name), name):
            raise error(f"has {problem}")
    if kind.name != plugin.name:
        raise error(f"calls itself {kind.name!r}")
    if kind.human_reply_limit < 1:
        raise error(f"must have a human_reply_limit above 0, and has {kind.human_reply_limit}")
    if unknown := kind.scorer_options - set(SCORER_OPTIONS):
        raise error(f"must have scorer_options of {', '.join(SCORER_OPTIONS)}, and has {sorted(unknown)}")


class _Reporter:
    """Words the errors of one kind's code."""

    def __init__(self, kind: TaskKind, package: str) -> None:
        self._kind, self._package = kind.name, package
        file, module = Path(inspect.getfile(type(kind))), inspect.getmodule(type(kind))
        self._source = file.parent if module is not None and module.__package__ else file

    @contextmanager
    def calling(self, method: str) -> Iterator[None]:
        """Turn an exception of the plug-in's code into a SweetError."""
        try:
            yield
        except SweetError:
            raise
        except (Exception, SystemExit) as error:
            place = place_of_failure(error, self._source)
            raise self.error(method, f"raised {_described(error)}", place) from error

    def checked(self, method: str, value: Any, hint: Any) -> Any:
        """Return the value; SweetError if it is not of the type `hint`."""
        if problem := mismatch(value, hint):
            raise self.error(method, f"returned {problem}")
        return value

    def wrapped(self, method: str, function: Callable[..., Any], hint: Any) -> Callable[..., Any]:
        """Return the function with its exceptions and its result checked."""

        def call(*args: Any, **options: Any) -> Any:
            with self.calling(method):
                value = function(*args, **options)
            return self.checked(method, value, hint)

        return call

    def deprecated(self, name: str, successor: str) -> None:
        problem = f"{name} of the task kind {self._kind!r} ({self._package}) is now called {successor}: rename it."
        warnings.warn(problem, DeprecationWarning, stacklevel=3)

    def error(self, method: str, problem: str, where: str | None = None) -> SweetError:
        return SweetError(
            f"{method} of the task kind {self._kind!r} ({self._package}) {problem}.",
            where=where,
            fix=f"correct it in {self._package}; --debug shows the traceback",
        )


class _Proxy:
    """Forwards to an object of a plug-in what `interface` declares."""

    interface: type
    label = ""

    def __init__(self, target: Any, report: _Reporter) -> None:
        self._target, self._report = target, report

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle look for these before __init__ has run
            raise AttributeError(name)
        hint = declared(self.interface, name)
        with self._report.calling(f"{self.label}{name}"):
            value = getattr(self._target, name)
        if inspect.isfunction(getattr(self.interface, name, None)):
            return self._report.wrapped(f"{self.label}{name}", value, hint)
        return self._report.checked(f"{self.label}{name}", value, hint)

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics of the plug-in, by their former name `figures` if it has only that."""
        if not _only_figures(self._target):
            return dict(self.__getattr__("metrics"))
        self._report.deprecated(f"{self.label}figures", "metrics")
        with self._report.calling(f"{self.label}figures"):
            value = self._target.figures
        return dict(self._report.checked(f"{self.label}figures", value, declared(self.interface, "metrics")))


class _CheckedKind(_Proxy):
    interface = TaskKind

    @property
    def scripted_agent(self) -> ScriptedAgent | None:
        agent = self.__getattr__("scripted_agent")
        return agent and self._report.wrapped("scripted_agent", agent, str)

    def with_prompts(self, folder: Path) -> Self:
        other = self.__getattr__("with_prompts")(folder)
        return type(self)(self._report.checked("with_prompts", other, TaskKind), self._report)

    def load(self, tasks: str, split: str) -> list[Task]:
        found: list[Task] = self.__getattr__("load")(tasks, split)
        if not found:
            raise self._report.error("load", "returned no task")
        name, count = Counter(task.id for task in found).most_common(1)[0]
        if count > 1:
            raise self._report.error("load", f"returned two tasks with the id {name!r}")
        return found

    def check(self, tasks: Sequence[Task], request: ScoringRequest, repeats: int) -> Iterator[Checked]:
        """Yield each task with its findings, with errors of the plug-in's code reported."""
        with self._report.calling("check"):
            found = iter(self._target.check(tasks, request, repeats))
        for task in tasks:
            with self._report.calling("check"):
                row = next(found, None)
            if row is None or len(row) != 2 or row[0] is not task:
                raise self._report.error("check", "did not yield each task with its findings, in their order")
            yield task, self._report.checked("check", row[1], list[Finding])

    @contextmanager
    def open_scorer(self, request: ScoringRequest) -> Iterator[TrajectoryScorer]:
        opened = self.__getattr__("open_scorer")(request)
        with self._report.calling("open_scorer"):
            scorer = opened.__enter__()
        try:
            yield cast(TrajectoryScorer, _CheckedScorer(scorer, self._report, self.metrics))
        except BaseException as error:
            with self._report.calling("open_scorer"):
                opened.__exit__(type(error), error, error.__traceback__)
            raise
        with self._report.calling("open_scorer"):
            opened.__exit__(None, None, None)


class _CheckedScorer(_Proxy):
    interface = TrajectoryScorer
    label = "the scorer's "

    def __init__(self, scorer: TrajectoryScorer, report: _Reporter, of_kind: Mapping[str, Metric]) -> None:
        super().__init__(scorer, report)
        if not self.name:
            raise report.error("the scorer's name", "is empty")
        for name in ("option", "meta", "environment"):
            getattr(self, name)
        if not self.metrics:
            raise report.error("the scorer's metrics", "are empty")
        if unknown := sorted(self.metrics.keys() - of_kind.keys()):
            raise report.error("the scorer's metrics", f"have {unknown[0]!r}, which the kind's metrics do not have")

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics, with errors of their functions reported."""

        def checked(metric: Metric) -> Metric:
            if metric in METRICS.values():  # code that computes with rewards recognises these
                return metric
            value = self._report.wrapped("the scorer's metrics", metric.value, float | None)
            return replace(metric, value=value)

        return {name: checked(metric) for name, metric in super().metrics.items()}

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Yield each trajectory with its score: one row for each, in their order."""
        taken: list[str] = []

        def recorded() -> Iterator[Trajectory]:
            for trajectory in trajectories:
                taken.append(trajectory.id)
                yield trajectory

        rows = recorded()
        with self._report.calling("score"):
            found = iter(self._target.score(rows))
        count = 0
        while True:
            with self._report.calling("score"):
                row = next(found, None)
            if row is None:
                break
            trajectory, score = self._row(row)
            if count >= len(taken) or trajectory.id != taken[count] or score.id != trajectory.id:
                raise self._report.error("score", f"yielded the score of {score.id} out of order")
            count += 1
            yield trajectory, score
        if count < len(taken) or next(rows, None) is not None:
            raise self._report.error("score", f"ended after {count} dialogues, before the last one")

    def _row(self, row: Any) -> tuple[Trajectory, Score]:
        if not (isinstance(row, tuple) and len(row) == 2):
            raise self._report.error("score", f"yielded {type(row).__name__} instead of a dialogue and its score")
        trajectory: Trajectory = self._report.checked("score", row[0], Trajectory)
        score: Score = self._report.checked("score", row[1], Score)
        if not (score.reward is None or -1 <= score.reward <= 1):
            raise self._report.error("score", f"yielded the reward {score.reward}, and rewards are between -1 and 1")
        if (score.reward is None) != (score.outcome == "invalid"):
            problem = f"yielded the reward {score.reward} with the outcome {score.outcome}"
            raise self._report.error("score", f"{problem}; the reward of an invalid task, and no other, is None")
        if score.passed > score.total:
            raise self._report.error("score", f"yielded {score.passed} passed tests of {score.total}")
        try:
            score.model_dump_json()
        except ValueError as error:
            raise self._report.error("score", f"yielded a detail that is not JSON: {first_line(error)}") from error
        return trajectory, score


def _only_figures(target: Any) -> bool:
    """Return whether a kind or scorer defines `figures`, the former name of `metrics`, and no metrics of its own."""
    inherited = (TaskKind.metrics, AnswerScorer.metrics)
    found = inspect.getattr_static(target, "metrics", TaskKind.metrics)
    return any(found is each for each in inherited) and inspect.getattr_static(target, "figures", None) is not None


def _described(error: BaseException) -> str:
    """Return what was raised, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"ValidationError: {'.'.join(map(str, first['loc']))} of {error.title}: {first['msg']}"
    return described(error)
