"""How often a model that plays the human leaks the solution, counted over dialogues.

The leak rate counts dialogues in which the human leaked at least once. Of these, a reply is withheld if the agent did
not see it, because the human was asked again (sweet.humans.asking); a dialogue is leaked if a leak ended it, because
all tries leaked, or in protocol `upstream` if the agent saw one. Both may hold of one dialogue. Intervals are by
bootstrap over tasks.
"""

from __future__ import annotations

from collections import Counter
from statistics import fmean

from sweet.stages.artifacts import PERSON, is_model
from sweet.stages.intervals import clustered_mean
from sweet.stages.record import Rate, Record
from sweet.tasks.trajectory import LeakCounts


class LeakMetrics(Record):
    """LeakCounts of a model that plays the human; the keys are absent where no model plays it."""

    leak_rate: Rate
    """share of the dialogues in which the human leaked the solution at least once, withheld or not, with interval"""
    leaked_rate: Rate
    """share of the dialogues that ended by a leak, or with protocol upstream showed one to the agent, with interval"""
    withheld_rate: Rate
    """share of the dialogues in which a reply that leaks was withheld and the human asked again, with interval"""
    withheld_replies: int
    """replies that leak and were withheld"""
    withheld_faults: dict[str, int]
    """replies that were withheld, by their fault: leaked, and those that leave the role of the human"""
    tries_per_dialogue: float
    """replies that the human was asked for in a dialogue, the withheld ones included, on average"""


def model_plays(human: str | None, sim: str | None = None) -> bool:
    """Return whether a model plays the human of this name, so that its leaks are counted; of the names of several
    humans, whether one does. The scripted human may have a persona (`scripted:terse`).

    Args:
        sim: the human of the rollouts, where `human` is that of one dialogue. A person plays all of them.
    """
    if sim is not None and sim.partition(":")[0] == PERSON:
        return False
    return human is not None and any(is_model(name.partition(":")[0]) for name in human.split(", "))


class LeakTally:
    """Counts the leaks of dialogues."""

    def __init__(self) -> None:
        self.tasks: list[str] = []
        self.leaks: list[LeakCounts] = []

    def add(self, task: str, leaks: LeakCounts) -> None:
        """Count a dialogue on a task."""
        self.tasks.append(task)
        self.leaks.append(leaks)

    def metrics(self) -> LeakMetrics | None:
        """Return the metrics; None of no dialogue."""
        if not self.leaks:
            return None
        return LeakMetrics(
            leak_rate=self._share([leaks.any for leaks in self.leaks]),
            leaked_rate=self._share([leaks.shown for leaks in self.leaks]),
            withheld_rate=self._share([leaks.withheld > 0 for leaks in self.leaks]),
            withheld_replies=sum(leaks.withheld for leaks in self.leaks),
            withheld_faults=dict(Counter(fault for leaks in self.leaks for fault in sorted(leaks.faults))),
            tries_per_dialogue=round(fmean(leaks.tries for leaks in self.leaks), 6),
        )

    def by_task(self) -> dict[str, float]:
        """Return the share of each task's dialogues in which the human leaked."""
        leaked_by_task: dict[str, list[bool]] = {}
        for task, leaks in zip(self.tasks, self.leaks, strict=True):
            leaked_by_task.setdefault(task, []).append(leaks.any)
        return {task: fmean(leaked) for task, leaked in leaked_by_task.items()}

    def _share(self, leaked: list[bool]) -> Rate:
        return clustered_mean([float(value) for value in leaked], self.tasks).rate()
