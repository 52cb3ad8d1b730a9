"""What the order of the training examples saves and costs, on the runs of a study.

    python -m benchmarks.orders DIR [--tasks micro] [--seeds 5] [--methods sweet,sweet-lookahead] [--turns 150]
                                    [--orders pieces,grouped] [--eval-tasks 500] [--out FILE]

DIR is a folder of `benchmarks.micro` with these methods; what it has is not made again, and what is made here is added
to its runs, so give a copy if the study is to stay as it is. For each order of `sweet train-critic` and `sweet
train-actor --shuffle` and each seed it prints as JSON:

actor   success on the study's unseen tasks at temperature 1, and its difference to the order `examples`, with the
        intervals of the study (over tasks, and over seeds); `sharing`, tokens over computed tokens.
critic  the share of held-out preferences in the right order, the share of couples of replies that it orders as the
        generator does, at turns of validation dialogues (not with `--turns 0`: these dialogues take long on the longer
        families), and `sharing`. The critic is that of `sweet`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from sweet.cli.reporter import ConsoleReporter
from sweet.files import write_whole
from sweet.pipeline.steps import Step, StepCache
from sweet.runs.run import Run
from sweet.scoring.results.evaluation import Evaluation
from sweet.scoring.results.statistics import t_interval
from sweet.study.aggregate import RATE, against
from sweet.study.plan import SAMPLED, SeedJob
from sweet.study.settings import METHODS, Method, StudyConfig, StudySizes
from sweet.study.study import seed_jobs
from sweet.study.study_steps import StudySteps
from sweet.tasks.micro.family import FAMILIES, MICRO
from sweet.training.config import Order

ORDERS: tuple[Order, ...] = get_args(Order)
PLAIN = ORDERS[0]

Metrics = dict[str, Any]


def ordered(name: str, stage: str, order: Order) -> Method:
    """Return a method of the study whose critic or actor is trained in this order."""
    method = METHODS[name]
    return method.model_copy(update={stage: getattr(method, stage) | {"shuffle": order}})


class _OrderSteps(StudySteps):
    """The steps of a study, and the trainings among them."""

    def actor(self, method: Method) -> Step:
        return self.making(method)[-1]

    def critic(self, method: Method) -> Step:
        return self._critic(method.critic)


def steps_of(job: SeedJob, turns: int) -> _OrderSteps:
    cache = StepCache(Run.open_or_create(job.folder / job.run, "code"), ConsoleReporter())
    return _OrderSteps(cache, job.sizes.model_copy(update={"credit_turns": turns}), job.seed)


def actors(name: str, jobs: Sequence[SeedJob], orders: Sequence[Order], turns: int) -> Metrics:
    """Return the actors of a method by order."""
    success: dict[str, dict[int, dict[str, float]]] = {}
    sharing: dict[str, list[float]] = {}
    for job in jobs:
        steps = steps_of(job, turns)
        for order in orders:
            method = ordered(name, "actor", order)
            scores = steps.evaluate(method, SAMPLED)
            values = Evaluation(steps.cache.run, steps.cache.run.manifest(), scores.artifact).values()
            success.setdefault(order, {})[job.seed] = values.means(RATE)
            sharing.setdefault(order, []).append(float(steps.actor(method).metrics["sharing"]))
    return {order: actor_row(success[order], success[PLAIN], sharing[order]) for order in orders}


def actor_row(
    success: dict[int, dict[str, float]], plain: dict[int, dict[str, float]], sharing: Sequence[float]
) -> Metrics:
    by_seed = [fmean(tasks.values()) for tasks in success.values()]
    minus = None if success is plain else against(success, plain)
    return {
        "success": round(fmean(by_seed), 6),
        "success_by_seed": [round(value, 6) for value in by_seed],
        "sharing": round(fmean(sharing), 4),
        "minus_examples": None if minus is None else minus.model_dump(mode="json"),
    }


def critics(jobs: Sequence[SeedJob], orders: Sequence[Order], turns: int) -> Metrics:
    """Return the critics of `sweet` by order."""
    names = ("heldout_accuracy", "heldout", *(("agreement",) if turns else ()), "sharing")
    found: dict[str, dict[str, list[float]]] = {order: {} for order in orders}
    for job in jobs:
        steps = steps_of(job, turns)
        for order in orders:
            method = ordered("sweet", "critic", order)
            metrics = {**steps.critic(method).metrics, **(steps.credit(method).metrics if turns else {})}
            for name in names:
                found[order].setdefault(name, []).append(float(metrics[name]))
    return {
        order: {name: critic_row(values, found[PLAIN][name]) for name, values in found[order].items()}
        for order in orders
    }


def critic_row(values: Sequence[float], plain: Sequence[float]) -> Metrics:
    minus = t_interval([ours - theirs for ours, theirs in zip(values, plain, strict=True)])
    return {
        "mean": round(fmean(values), 6),
        "by_seed": [round(value, 6) for value in values],
        "minus_examples": None if minus is None else [round(x, 6) for x in (minus.mean, minus.low, minus.high)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", default=MICRO.name, choices=tuple(FAMILIES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", default="sweet,sweet-lookahead")
    parser.add_argument("--turns", type=int, default=150, help="turns of validation dialogues that critics judge")
    parser.add_argument("--orders", default=",".join(ORDERS[1:]), help=f"that are compared with {PLAIN}")
    parser.add_argument("--eval-tasks", type=int, default=StudySizes().eval_tasks)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names, wanted = options.methods.split(","), options.orders.split(",")
    if unknown := {*wanted} - {*ORDERS}:
        parser.error(f"there is no order {', '.join(sorted(unknown))}; there are {', '.join(ORDERS)}")
    orders = [order for order in ORDERS if order == PLAIN or order in wanted]
    sizes = {"tasks": options.tasks, "eval_tasks": options.eval_tasks, "parts": ()}
    config = StudyConfig.model_validate({"methods": names, "seeds": options.seeds, **sizes})
    jobs = seed_jobs(options.folder.absolute(), config)
    results: Metrics = {
        "family": options.tasks,
        "seeds": options.seeds,
        "eval_tasks": options.eval_tasks,
        "actor": {name: actors(name, jobs, orders, options.turns) for name in names},
        "critic": critics(jobs, orders, options.turns),
    }
    text = json.dumps(results, indent=1)
    print(text)
    if options.out is not None:
        write_whole(options.out, f"{text}\n".encode())


if __name__ == "__main__":
    main()
