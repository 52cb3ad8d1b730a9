"""`next:` as a state machine: from each state that ten steps reach, the command runs and brings the run forward.

A step is the command that is suggested first, or a deviation: another suggestion, an interruption or a kill of the
command, a stage that finds nothing, a file that is deleted, dialogues that the user plays instead. Paths with one
deviation are searched exhaustively, states that differ in nothing that matters once. The stages are simulated
(tests.inspection.simulated); their parser and their selection of inputs are the real ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweet.runs.stages import KINDS
from tests.inspection.simulated import World, fresh, parsed

STEPS = 10
DEVIATIONS = 1
ENDS = ("compare", "report", "view")
LONGEST = 30
"""Commands after which a run that nothing disturbs has ended."""

TRAIN = "sweet rollout RUN --samples 4 --seed {seed}"
PLAYS = (
    "sweet rollout RUN --split test",
    "sweet rollout RUN --split validation --samples 2",
    "sweet rollout RUN --seed 7",
    TRAIN.format(seed=8),
)
"""What the user may play instead."""


def is_end(world: World) -> bool:
    return world.next[0].split()[1] in ENDS


def step(world: World, line: str) -> World:
    """Return the world after a suggested command, which has to bring it forward."""
    after = world.call(line)
    assert after.key != world.key, line
    made = [one for one in after.manifest.artifacts if after.made.get(one.id) != world.made.get(one.id)]
    assert [one.status for one in made] == ["done"], f"{line} makes one artifact"
    assert not after.learned_from_evaluation(made[0]), f"{line} learns from dialogues for evaluation"
    return after


def deviations(world: World) -> Iterator[tuple[str, World]]:
    """Yield what else may happen, with the world after it."""
    lines = world.next
    first = lines[0]
    for line in lines[1:]:
        if line.split()[1] not in ENDS:
            yield "another suggestion", step(world, line)
    if not is_end(world) and "data import" not in first:
        yield "interrupted", world.call(first, "interrupted")
        if first.split()[1] in ("label", "pair") and "--resume" not in first:
            yield "found nothing", world.call(first, "failed")
    for kind in KINDS:
        done = [one for one in world.manifest.of_kind(kind, "done") if one.id not in world.gone]
        if done:
            yield f"deleted {kind}", world.without(done[-1])
    for line in PLAYS:
        yield "played", world.call(line)
    actors = [one for one in world.manifest.of_kind("actor", "done") if one.id not in world.gone]
    if actors:
        yield "played by the actor", world.call(f"sweet rollout RUN --agent RUN/{actors[-1].path} --samples 4")


class Search:
    """Attributes:
    steps_to_end: by state, the number of suggested commands until the run has ended.
    worlds: the first world of each state, which stands for all of them: what it suggests is found once.
    after: by state and suggested command, the world after it. others: by state, the worlds after its deviations.
    """

    def __init__(self) -> None:
        self.worlds: dict[tuple[object, ...], World] = {}
        self.after: dict[tuple[tuple[object, ...], str], World] = {}
        self.others: dict[tuple[object, ...], list[tuple[str, World]]] = {}
        self.seen: set[tuple[object, ...]] = set()
        self.best: dict[tuple[object, ...], tuple[int, int]] = {}
        self.steps_to_end: dict[tuple[object, ...], int] = {}
        self.transitions: Counter[str] = Counter()
        self.commands: Counter[str] = Counter()

    def explore(self, world: World, steps: int = STEPS, left: int = DEVIATIONS) -> None:
        """Take every path of at most so many steps and deviations."""
        known = self.best.get(world.key)
        if known is not None and known[0] >= steps and known[1] >= left:
            return
        self.best[world.key] = (steps, left)
        world = self.known(world)
        new = world.key not in self.seen
        self.seen.add(world.key)
        if new:
            self.check(world)
        if not steps:
            return
        if not is_end(world):
            self.transitions["suggested"] += new
            self.explore(self.step(world), steps - 1, left)
        if left:
            if world.key not in self.others:
                self.others[world.key] = list(deviations(world))
            for what, after in self.others[world.key]:
                self.transitions[what] += new
                self.explore(after, steps - 1, left - 1)

    def known(self, world: World) -> World:
        return self.worlds.setdefault(world.key, world)

    def step(self, world: World) -> World:
        """Return the world after the first suggestion."""
        line = world.next[0]
        if (world.key, line) not in self.after:
            self.after[world.key, line] = self.known(step(world, line))
        return self.after[world.key, line]

    def check(self, world: World) -> None:
        """Check that the suggestions are commands, and that they lead to the end without a circle."""
        for line in world.next:
            self.commands[line.split()[1]] += 1
            if "data import" not in line:
                parsed(tuple("org/model" if word == "MODEL" else word for word in line.split()))
        path: list[World] = []
        while world.key not in self.steps_to_end:
            assert len(path) < LONGEST, [one.next[0] for one in path] + [one.id for one in world.manifest.artifacts]
            path.append(world)
            if is_end(world):
                self.steps_to_end[world.key] = 0
                break
            world = self.step(world)
        for steps, one in enumerate(reversed(path), self.steps_to_end[world.key]):
            self.steps_to_end.setdefault(one.key, steps + (one.key != world.key))


def new(folder: Path) -> World:
    return fresh(folder)


def imported(folder: Path) -> World:
    return fresh(folder).imported()


def own_file(folder: Path) -> World:
    """Return a run on a file without splits."""
    return fresh(folder, splits=False).call("sweet rollout RUN --tasks own.jsonl --samples 4")


def pages(folder: Path) -> World:
    """Return a run whose agent is no model."""
    return fresh(folder, "html").call("sweet rollout RUN --task html --agent scripted --samples 4")


def second_round(folder: Path) -> World:
    """Return a run whose first actor was evaluated and has played to learn from."""
    world = fresh(folder).call("sweet rollout RUN --split test")
    while not is_end(world):
        world = step(world, world.next[0])
    return step(world, world.next[-1])


@pytest.mark.parametrize("start", [new, imported, own_file, pages, second_round])
def test_every_suggestion_runs_and_brings_the_run_forward(tmp_path: Path, start: Callable[[Path], World]) -> None:
    search = Search()
    search.explore(start(tmp_path))
    assert len(search.seen) > 300
    assert search.commands.keys() >= {"rollout", "eval", "label", "train-critic", "rank", "pair", "train-actor"}
