"""A kind of task that another package brings, so that what it does wrong is told by its package and method.

Every call of a kind goes through `GuardedKind`. An exception of the kind's own becomes an error that says which method
of which package raised it, and where; what it gives back is checked, so that a wrong type is found here and not three
stages later. Errors of `sweet.errors` are meant for the user and pass as they are.
"""

from __future__ import annotations

import inspect
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from sweet.errors import SweetError, UsageError, described, first_line
from sweet.plugins import Plugin
from sweet.tasks.base import Message, Move, Recipe, Task
from sweet.tasks.kind import ScriptedAgent, TaskKind
from sweet.tasks.prompts import Prompts
from sweet.tasks.scores import FIGURES, SCORER_OPTIONS, Figure, RewardRule, Score, ScoringRequest, TrajectoryScorer
from sweet.tasks.trajectory import Trajectory

T = TypeVar("T")

_ATTRIBUTES: dict[str, type] = {
    "name": str,
    "language": str,
    "human_reply_limit": int,
    "rewards": RewardRule,
    "scorer_options": frozenset,
    "visual": bool,
    "spreads": bool,
    "datasets": Mapping,
}


def check_attributes(kind: TaskKind, plugin: Plugin) -> None:
    """UsageError where an attribute of the kind is missing, of a wrong type, or does not fit its entry point."""

    def wrong(what: str) -> UsageError:
        return UsageError(
            f"The kind of task {plugin.name!r}, which {plugin} brings, {what}.",
            where=f"entry point {plugin.name} = {plugin.point.value}",
            fix=f"mend {type(kind).__name__} of {plugin.package}",
        )

    def attribute(name: str) -> Any:
        try:
            return getattr(kind, name, None)
        except (Exception, SystemExit) as error:
            raise wrong(f"raised {told(error)} when asked for {name!r}") from error

    for name, wanted in _ATTRIBUTES.items():
        value = attribute(name)
        if not isinstance(value, wanted):
            raise wrong(f"must have {name!r} as {wanted.__name__}, and has {value!r:.100}")
    if kind.name != plugin.name:
        raise wrong(f"calls itself {kind.name!r}")
    texts = attribute("texts")
    if not (isinstance(texts, type) and issubclass(texts, Prompts)):
        raise wrong(f"must have 'texts' as a class derived from sweet.tasks.prompts.Prompts, and has {texts!r:.100}")
    if kind.human_reply_limit < 1:
        raise wrong(f"must have a 'human_reply_limit' above 0, and has {kind.human_reply_limit}")
    if kind.scorer_options - set(SCORER_OPTIONS):
        raise wrong(
            f"must have 'scorer_options' of {', '.join(SCORER_OPTIONS)}, and has {set(kind.scorer_options)!r:.100}"
        )
    if not all(isinstance(number, int | float) for number in (kind.rewards.solved or 0.0, kind.rewards.margin)):
        raise wrong(f"must have numbers in 'rewards', and has {kind.rewards!r:.100}")
    for name, splits in kind.datasets.items():
        if not (isinstance(splits, Mapping) and all(isinstance(file, Path) for file in splits.values())):
            raise wrong(
                f"must have the file of each split as a pathlib.Path in 'datasets', and has {name!r}: {splits!r:.100}"
            )


def told(error: BaseException) -> str:
    """What was raised, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"ValidationError: {'.'.join(map(str, first['loc']))} of {error.title}: {first['msg']}"
    return described(error)


def _source(kind: type[TaskKind]) -> Path:
    """The folder of the package that the class is written in, or its file where that is a module by itself."""
    module = inspect.getmodule(kind)
    file = Path(inspect.getfile(kind))
    return file.parent if module is not None and module.__package__ else file


def place_of_failure(error: BaseException, source: Path | None = None) -> str | None:
    """The file and line that raised: the innermost in `source`, a folder or file, where one is given."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if source is None or Path(frame.filename).is_relative_to(source)]
    return f"{inside[-1].filename}, line {inside[-1].lineno}" if inside else None


class _Watch:
    """Tells what goes wrong in the methods of one kind."""

    def __init__(self, kind: TaskKind, package: str) -> None:
        self.kind, self.package = kind.name, package
        self._source = _source(type(kind))

    @contextmanager
    def __call__(self, method: str) -> Iterator[None]:
        try:
            yield
        except SweetError:
            raise
        except (Exception, SystemExit) as error:
            raise self.wrong(method, f"raised {told(error)}", place_of_failure(error, self._source)) from error

    def wrong(self, method: str, what: str, where: str | None = None) -> SweetError:
        return SweetError(
            f"{method} of the kind of task {self.kind!r}, which {self.package} brings, {what}.",
            where=where,
            fix=f"mend it in {self.package}; --debug shows the traceback",
        )

    def a(self, wanted: type[T], method: str, value: object) -> T:
        """The value, which must be of this type."""
        if not isinstance(value, wanted):
            raise self.wrong(method, f"gave {type(value).__name__} in place of {wanted.__name__}")
        return value

    def list_of(self, wanted: type[T], method: str, value: object) -> list[T]:
        if not isinstance(value, list | tuple):
            raise self.wrong(method, f"gave {type(value).__name__} in place of a list of {wanted.__name__}")
        return [self.a(wanted, method, item) for item in value]

    def call(self, wanted: type[T], method: str, work: Callable[[], object]) -> T:
        with self(method):
            value = work()
        return self.a(wanted, method, value)


class GuardedKind(TaskKind):
    """Does what `kind` does, and tells what goes wrong by the name of its package."""

    def __init__(self, kind: TaskKind, package: str) -> None:
        self._kind, self._watch = kind, _Watch(kind, package)
        self.name, self.texts, self.datasets, self.language = kind.name, kind.texts, kind.datasets, kind.language
        self.human_reply_limit, self.rewards = kind.human_reply_limit, kind.rewards
        self.scorer_options, self.visual, self.spreads = kind.scorer_options, kind.visual, kind.spreads

    @property
    def scripted_agent(self) -> ScriptedAgent | None:
        with self._watch("scripted_agent"):
            agent = self._kind.scripted_agent
        if agent is None:
            return None

        def speak(messages: Sequence[Message], temperature: float, seed: int | None) -> str:
            return self._watch.call(str, "scripted_agent", lambda: agent(messages, temperature, seed))

        return speak

    @property
    def figures(self) -> Mapping[str, Figure]:
        return self._watch.call(dict, "figures", lambda: dict(self._kind.figures))

    @property
    def prompts(self) -> Prompts:
        return self._watch.call(Prompts, "prompts", lambda: self._kind.prompts)

    def with_prompts(self, folder: Path) -> Self:
        with self._watch("with_prompts"):
            other = self._kind.with_prompts(folder)
        if not isinstance(other, TaskKind):
            raise self._watch.wrong("with_prompts", f"gave {type(other).__name__} in place of a kind")
        return type(self)(other, self._watch.package)

    def agent_system(self) -> str:
        return self._watch.call(str, "agent_system", self._kind.agent_system)

    def human_prompt(self, task: Task, dialogue: Sequence[Message]) -> list[Message]:
        with self._watch("human_prompt"):
            said = self._kind.human_prompt(task, dialogue)
        return self._watch.list_of(Message, "human_prompt", said)

    def default_tasks(self) -> str:
        return self._watch.call(str, "default_tasks", self._kind.default_tasks)

    def load(self, tasks: str, split: str) -> list[Task]:
        with self._watch("load"):
            found = self._kind.load(tasks, split)
        given = self._watch.list_of(Task, "load", found)
        if not given:
            raise self._watch.wrong("load", "gave no task")
        name, count = Counter(task.id for task in given).most_common(1)[0]
        if count > 1:
            raise self._watch.wrong("load", f"gave two tasks with the id {name!r}")
        return given

    def check_scripted_human(self, tasks: Sequence[Task]) -> None:
        with self._watch("check_scripted_human"):
            self._kind.check_scripted_human(tasks)

    def scripted_reply(self, task: Task, dialogue: Sequence[Message]) -> str:
        return self._watch.call(str, "scripted_reply", lambda: self._kind.scripted_reply(task, dialogue))

    def move(self, output: str, *, last: bool, recipe: Recipe = "paper") -> Move:
        move = self._watch.call(Move, "move", lambda: self._kind.move(output, last=last, recipe=recipe))
        for name, wanted in (("content", str), ("answer", str | None), ("ends", bool)):
            if not isinstance(value := getattr(move, name), wanted):
                raise self._watch.wrong("move", f"gave a move whose {name} is {value!r:.40}")
        return move

    @contextmanager
    def open_scorer(self, request: ScoringRequest) -> Iterator[TrajectoryScorer]:
        with self._watch("open_scorer"):
            opened = self._kind.open_scorer(request)
        if not isinstance(opened, AbstractContextManager):
            raise self._watch.wrong("open_scorer", f"gave {type(opened).__name__} in place of a context manager")
        with self._watch("open_scorer"):
            scorer = opened.__enter__()
        try:
            yield _GuardedScorer(scorer, self.figures, self._watch)
        except BaseException as error:
            with self._watch("open_scorer"):
                opened.__exit__(type(error), error, error.__traceback__)
            raise
        with self._watch("open_scorer"):
            opened.__exit__(None, None, None)


class _GuardedScorer:
    """Implements sweet.tasks.scores.TrajectoryScorer over that of a kind."""

    def __init__(self, scorer: TrajectoryScorer, of_kind: Mapping[str, Figure], watch: _Watch) -> None:
        self._scorer, self._watch = scorer, watch
        self.name = watch.call(str, "the scorer's name", lambda: scorer.name)
        if not self.name:
            raise watch.wrong("the scorer's name", "gave an empty one")
        self.option = watch.call(str, "the scorer's option", lambda: scorer.option)
        self.meta: Mapping[str, Any] = watch.call(dict, "the scorer's meta", lambda: dict(scorer.meta))
        self.environment: Mapping[str, Any] = watch.call(
            dict, "the scorer's environment", lambda: dict(scorer.environment)
        )
        figures = watch.call(dict, "the scorer's figures", lambda: dict(scorer.figures))
        self.figures: Mapping[str, Figure] = {
            watch.a(str, "the scorer's figures", name): self._figure(watch.a(Figure, "the scorer's figures", figure))
            for name, figure in figures.items()
        }
        if not figures:
            raise watch.wrong("the scorer's figures", "gave none")
        stranger = next((name for name in figures if name not in of_kind), None)
        if stranger is not None:
            raise watch.wrong("the scorer's figures", f"gave {stranger!r}, which the kind's figures do not have")

    def _figure(self, figure: Figure) -> Figure:
        if figure in FIGURES.values():  # known as what they are to who computes with rewards
            return figure

        def value(score: Score) -> float | None:
            with self._watch("the scorer's figures"):
                found = figure.value(score)
            if not (found is None or (isinstance(found, int | float) and isfinite(found))):
                raise self._watch.wrong("the scorer's figures", f"gave {found!r:.40} in place of a number")
            return found

        return replace(figure, value=value)

    def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
        """Each trajectory with its score; one row for each, in their order."""
        given: list[str] = []

        def noted() -> Iterator[Trajectory]:
            for trajectory in trajectories:
                given.append(trajectory.id)
                yield trajectory

        rows = noted()
        with self._watch("score"):
            found = iter(self._scorer.score(rows))
        count = 0
        while True:
            with self._watch("score"):
                try:
                    row = next(found)
                except StopIteration:
                    break
            trajectory, score = self._row(row)
            if count >= len(given) or trajectory.id != given[count] or score.id != trajectory.id:
                raise self._watch.wrong("score", f"gave the score of {score.id} where it was another's turn")
            count += 1
            yield trajectory, score
        if count < len(given) or next(rows, None) is not None:
            raise self._watch.wrong("score", f"ended after {count} trajectories, and there are more")

    def _row(self, row: object) -> tuple[Trajectory, Score]:
        if not (isinstance(row, tuple) and len(row) == 2):
            raise self._watch.wrong("score", f"gave {type(row).__name__} in place of a trajectory and its score")
        trajectory, score = self._watch.a(Trajectory, "score", row[0]), self._watch.a(Score, "score", row[1])
        if not (score.reward is None or -1 <= score.reward <= 1):
            raise self._watch.wrong("score", f"gave the reward {score.reward}, and rewards lie between -1 and 1")
        if (score.reward is None) != (score.outcome == "invalid"):
            why = "a task has none where it is invalid, and only there"
            raise self._watch.wrong("score", f"gave the reward {score.reward} with the outcome {score.outcome}; {why}")
        if score.passed > score.total:
            raise self._watch.wrong("score", f"gave {score.passed} passed tests of {score.total}")
        try:
            score.model_dump_json()
        except ValueError as error:
            raise self._watch.wrong("score", f"gave a detail that is no JSON: {first_line(error)}") from error
        return trajectory, score
