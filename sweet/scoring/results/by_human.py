"""Success by human: the first metric of two evaluations, for each human that their dialogues name.

Humans play different tasks in one rollout (`--spread tasks`), so two humans of one side are not paired. One human on
both sides is, over the tasks that both sides played with it. A side whose dialogues name no human is all of its one
human.
"""

from __future__ import annotations

from collections.abc import Mapping

from sweet.scoring.results.evaluation import Evaluation, Values
from sweet.scoring.results.metrics import ComparedHuman, ComparedHumans
from sweet.scoring.results.statistics import mean_difference
from sweet.stages.intervals import clustered_mean
from sweet.stages.record import Rate, UnknownRate


def compare_humans(a: Evaluation, b: Evaluation, ours: Values, theirs: Values) -> ComparedHumans | None:
    """Return the metric by human; None where the dialogues of neither side name their human."""
    if not (ours.humans or theirs.humans):
        return None
    sides = [values.by_human(str(side.played.get("sim"))) for side, values in ((a, ours), (b, theirs))]
    figure = next(name for name in b.kind.metrics if name in ours.figures and name in theirs.figures)
    bounds = ours.bounds(figure)
    means = [{human: values.means(figure) for human, values in side.items()} for side in sides]
    humans = sorted(means[0].keys() | means[1].keys())
    return ComparedHumans(
        figure=figure,
        humans={human: _compared(means[0].get(human, {}), means[1].get(human, {}), bounds) for human in humans},
    )


def _compared(a: Mapping[str, float], b: Mapping[str, float], bounds: tuple[float, float]) -> ComparedHuman:
    """Return the comparison of two sides, by the mean of each of their tasks."""
    shared = sorted(a.keys() & b.keys())
    difference: Rate | UnknownRate = UnknownRate()
    if shared:
        difference = mean_difference([b[task] - a[task] for task in shared], span=bounds[1] - bounds[0]).rate()
    return ComparedHuman(
        a_tasks=len(a), b_tasks=len(b), a=_mean(a, bounds), b=_mean(b, bounds), tasks=len(shared), difference=difference
    )


def _mean(tasks: Mapping[str, float], bounds: tuple[float, float]) -> Rate | UnknownRate:
    return clustered_mean(list(tasks.values()), list(tasks), bounds=bounds).rate() if tasks else UnknownRate()
