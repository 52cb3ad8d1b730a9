"""Find the installed kinds of tasks by name, import them, and check those of other packages.

A kind and a scorer of another package are behind proxies, which report errors of the package's code as its own. A proxy
forwards every attribute and method that `TaskKind` or `TrajectoryScorer` declares, and checks what the plug-in returns
(`sweet.plugin_code`).
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar, cast, get_type_hints

from sweet.errors import UsageError, described, first_line
from sweet.plugin_code import PluginCode, declared, installed_plugin, mismatch
from sweet.plugins import TASKS, Plugin, Registered, plugins, register
from sweet.tasks.base import Message, Task
from sweet.tasks.findings import Checked, Finding
from sweet.tasks.kind import ScriptedAgent, TaskKind
from sweet.tasks.scores import METRICS, SCORER_OPTIONS, Metric, Score, ScoringRequest, TrajectoryScorer
from sweet.tasks.trajectory import Trajectory

_WHAT = "kind of task"

K = TypeVar("K", bound=TaskKind)


def task_kind(name: str) -> TaskKind:
    """Return the kind called `name`, which has its source behind a colon if it takes one.

    Raises:
        UsageError: no such kind is installed, several packages have one, or the kind cannot be loaded; the name lacks
            the source, or has one too many.
    """
    plain, _, source = name.partition(":")
    kind = load_kind(installed_plugin(TASKS, _WHAT, plain, list(plugins(TASKS)), "task"))
    if bool(source) != bool(kind.takes):
        right = f"{plain}:{kind.takes}".rstrip(":")
        raise UsageError(f"The kind of task {name!r} is to be named as {right}.", where="--task", fix=f"--task {right}")
    return kind.with_source(source) if source else kind


def register_kind(kind: type[K]) -> type[K]:
    """Make a kind of task known to this process, by its `name`; no package needs to be installed for it.

    It can be a decorator. A kind that is registered again replaces the earlier one, as when a cell of a notebook is run
    again. Commands, and other programs that open the run, find only installed kinds (docs/tasks.md).

    Raises:
        UsageError: it has no name, an installed package has that name, or it is no valid kind.
    """
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name:
        raise UsageError("A kind of task needs a name.", where=kind.__qualname__, fix="a class attribute `name`")
    named = plugins(TASKS).get(name, [])
    if named and not named[0].registered:
        raise UsageError(f"{named[0]} has a kind of task called {name!r}.", where=kind.__qualname__, fix="another name")
    plugin = Plugin(name, kind.__module__, "", Registered(name, kind))
    load_kind(plugin)
    register(TASKS, plugin)
    return kind


def load_kind(plugin: Plugin) -> TaskKind:
    """Return the kind of a package.

    Raises:
        UsageError: it cannot be imported or created, or an attribute is invalid; names the package and the problem.
    """
    code = PluginCode(_WHAT, plugin)
    factory = code.load(TaskKind)  # type: ignore[type-abstract]
    try:
        kind = factory()
    except (Exception, SystemExit) as error:
        raise code.broken(f"cannot be created: {type(error).__name__}: {error}", error) from error
    return kind if plugin.ours else _checked_kind(kind, plugin, code)


def _checked_kind(kind: TaskKind, plugin: Plugin, code: PluginCode) -> TaskKind:
    """Return the kind of a plug-in behind a proxy.

    Raises:
        UsageError: an attribute of the kind has a wrong type or value.
    """
    for name in get_type_hints(TaskKind):
        if name.startswith("_"):
            continue
        try:
            value = getattr(kind, name, None)
        except (Exception, SystemExit) as raised:
            raise code.broken(f"raised {described(raised)} in its attribute {name}", raised) from raised
        if problem := mismatch(value, declared(TaskKind, name), name):
            raise code.broken(f"has {problem}")
    if kind.name != plugin.name:
        raise code.broken(f"calls itself {kind.name!r}")
    if kind.human_reply_limit < 1:
        raise code.broken(f"must have a human_reply_limit above 0, and has {kind.human_reply_limit}")
    if unknown := kind.scorer_options - set(SCORER_OPTIONS):
        raise code.broken(f"must have scorer_options of {', '.join(SCORER_OPTIONS)}, and has {sorted(unknown)}")
    return cast(TaskKind, _CheckedKind(kind, code))


class _Proxy:
    """Forwards to an object of a plug-in what `interface` declares."""

    interface: type
    label = ""

    def __init__(self, target: Any, report: PluginCode) -> None:
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


class _CheckedKind(_Proxy):
    interface = TaskKind

    @property
    def scripted_agent(self) -> ScriptedAgent | None:
        agent = self.__getattr__("scripted_agent")
        return agent and self._report.wrapped("scripted_agent", agent, str | Message)

    def with_prompts(self, folder: Path) -> Self:
        other = self.__getattr__("with_prompts")(folder)
        return type(self)(self._report.checked("with_prompts", other, TaskKind), self._report)

    def with_source(self, source: str) -> Self:
        other = self.__getattr__("with_source")(source)
        return type(self)(self._report.checked("with_source", other, TaskKind), self._report)

    def load(self, tasks: str, split: str) -> list[Task]:
        drawn: list[Task] = self.__getattr__("load")(tasks, split)
        if not drawn:
            raise self._report.error("load", "returned no task")
        name, count = Counter(task.id for task in drawn).most_common(1)[0]
        if count > 1:
            raise self._report.error("load", f"returned two tasks with the id {name!r}")
        return drawn

    def check(self, tasks: Sequence[Task], request: ScoringRequest, repeats: int) -> Iterator[Checked]:
        """Yield each task with its findings, with errors of the plug-in's code reported."""
        with self._report.calling("check"):
            rows = iter(self._target.check(tasks, request, repeats))
        for task in tasks:
            with self._report.calling("check"):
                row = next(rows, None)
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

    def __init__(self, scorer: TrajectoryScorer, report: PluginCode, of_kind: Mapping[str, Metric]) -> None:
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

        return {name: checked(metric) for name, metric in self.__getattr__("metrics").items()}

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Yield each trajectory with its score: one row for each, in their order."""
        read_ids: list[str] = []

        def recorded() -> Iterator[Trajectory]:
            for trajectory in trajectories:
                read_ids.append(trajectory.id)
                yield trajectory

        rows = recorded()
        with self._report.calling("score"):
            scored_rows = iter(self._target.score(rows))
        count = 0
        while True:
            with self._report.calling("score"):
                row = next(scored_rows, None)
            if row is None:
                break
            trajectory, score = self._row(row)
            if count >= len(read_ids) or trajectory.id != read_ids[count] or score.id != trajectory.id:
                raise self._report.error("score", f"yielded the score of {score.id} out of order")
            count += 1
            yield trajectory, score
        if count < len(read_ids) or next(rows, None) is not None:
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
