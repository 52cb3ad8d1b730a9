"""Choose the settings of each method by as many tries, on validation tasks and a seed that the study does not use.

The first try of a method is its own settings; the others multiply some of them by factors (`FACTORS`) that are drawn by
the method's name. All tries learn from the tokens of one seed of the study, so the search costs each method the same
tokens. The best by the success on validation tasks is compared with the other methods; of equal ones the first.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from sweet.json_value import JsonValue
from sweet.stages.base import seed_after
from sweet.study.results import Try
from sweet.study.settings import Method, StudyConfig
from sweet.study.study_steps import RATE, SeedJob, StudySteps, read_seeds

TUNING_SEED = 1000
"""The seed of the tries is so far from the first of the study."""
FACTORS: Mapping[tuple[str, str], Sequence[float]] = {
    ("actor", "lr"): (1, 1 / 3, 3),
    ("actor", "epochs"): (1, 2),
    ("actor", "nll"): (1, 1 / 3, 3),
    ("critic", "lr"): (1, 1 / 3, 3),
}
"""By stage and option. An option that a method does not set, or sets to 0, is not searched."""


def tuning_job(folder: Path, config: StudyConfig, methods: Iterable[Method]) -> SeedJob:
    """Return the work of all tries."""
    tries = tuple(variant for method in methods for variant in variants(method, config.tries))
    seed = seed_after(config.seed, TUNING_SEED)
    return SeedJob(folder=folder, seed=seed, sizes=config.sizes(), methods=tries, figures=False, validates=True)


def variants(method: Method, tries: int) -> list[Method]:
    """Return the method and further ones with other settings, as many in all as there are tries, or as there are."""
    settings = {(stage, name): getattr(method, stage).get(name) for stage, name in FACTORS}
    searched = {key: value for key, value in settings.items() if isinstance(value, int | float) and value}
    _, *combinations = itertools.product(*(FACTORS[key] for key in searched))
    drawn = random.Random(method.name).sample(combinations, min(tries - 1, len(combinations)))
    methods = [method]
    for number, factors in enumerate(drawn, start=2):
        changed: dict[str, dict[str, JsonValue]] = {"actor": dict(method.actor), "critic": dict(method.critic)}
        for ((stage, name), value), factor in zip(searched.items(), factors, strict=True):
            changed[stage][name] = value * factor if isinstance(value, int) else float(f"{value * factor:.2g}")
        methods.append(method.model_copy(update={"name": f"{method.name} {number}", **changed}))
    return methods


def best_of_tries(
    job: SeedJob, methods: Mapping[str, Method], tries: int
) -> tuple[dict[str, Method], dict[str, list[Try]]]:
    """Return each method with its best settings, and its tries; one without a finished try as it is.

    Args:
        job: the finished work of the tries.
    """
    chosen, tried = {}, {}
    for name, method in methods.items():
        done = [
            (variant, float(scores.metrics[RATE]))
            for variant in variants(method, tries)
            for _, scores in read_seeds([job], partial(StudySteps.validated, method=variant)).values()
        ]
        best = max(done, key=lambda pair: pair[1], default=(method, 0.0))[0]
        chosen[name] = best.model_copy(update={"name": name})
        tried[name] = [Try(settings=variant.settings(), success=success) for variant, success in done]
    return chosen, tried
