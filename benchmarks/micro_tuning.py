"""Tune the hyperparameters of the study's methods on the validation tasks.

    python -m benchmarks.micro_tuning [DIR] [--methods a,b] [--seeds 2] [--jobs N] [--tasks 256] [--family micro]
                                      [--train-tasks 300]

Each method of `TUNED` runs with BUDGET settings on seeds that the study does not use; ablations and controls use the
settings of `sweet`. The generated tokens are those of the study, or a
share of them by `--train-tasks`. No test task is used. The results contain all settings, and which was best in the mean
over seeds; the values of the rules are updated by hand. Finished steps in DIR are not repeated, also not after the
process was killed. The results of methods that are not named are kept, with the sizes, the tasks and the seeds that
they were tuned with.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from sweet.cli.reporter import ConsoleReporter
from sweet.paths import RUNS
from sweet.study.aggregate import success_of
from sweet.study.plan import SAMPLED, SeedJob, read_seeds
from sweet.study.seeds import run_seeds
from sweet.study.settings import METHODS, TUNED, Method, Options, StudySizes
from sweet.study.study import claimed
from sweet.tasks.micro.family import FAMILIES, MICRO

OUT = Path(__file__).parent / "results" / "micro-tuning.json"
FIRST_SEED = 1000
"""Far from the seeds of the study."""
SIZES: dict[str, Any] = {"curve_steps": 1_000_000}
"""Sizes that are not those of the study: there are no learning curves."""
BUDGET = 11
"""The number of settings of each method."""

RFT: list[Options] = [
    {"lr": lr, "epochs": epochs}
    for lr, epochs in [*itertools.product((5e-4, 1e-3, 2e-3), (3, 10, 20)), (2e-3, 40), (4e-3, 20)]
]
MULTI_TURN_DPO: list[Options] = [
    {"lr": 1e-4, "nll": 0.3, "epochs": 2},
    {"lr": 1e-4, "nll": 3.0, "epochs": 2},
    {"lr": 3e-4, "nll": 3.0, "epochs": 2},
    {"lr": 3e-4, "nll": 10.0, "epochs": 2},
    {"lr": 3e-4, "nll": 10.0, "epochs": 4},
    {"lr": 1e-3, "nll": 10.0, "epochs": 2},
    {"lr": 3e-4, "nll": 10.0, "epochs": 8},
    {"lr": 3e-4, "nll": 30.0, "epochs": 4},
    {"lr": 6e-4, "nll": 30.0, "epochs": 8},
    {"lr": 6e-4, "nll": 30.0, "epochs": 16},
    {"lr": 1e-3, "nll": 30.0, "epochs": 8},
]
NLL_3: Options = {"lr": 1.5e-4, "nll": 3.0}
NLL_1: Options = {"lr": 1.5e-4, "nll": 1.0}
SLOWER: Options = {"lr": 7e-5, "nll": 1.0}
SWEET: list[tuple[Options, Options, Options]] = [
    (NLL_3, {}, {"lr": 3e-4, "nll": 3.0, "epochs": 2}),
    (NLL_3, {}, {"lr": 3e-4, "nll": 1.0, "epochs": 2}),
    (NLL_3, {}, {"lr": 1e-4, "nll": 3.0, "epochs": 2}),
    (NLL_3, {}, {"lr": 5e-4, "nll": 3.0, "epochs": 2}),
    (NLL_1, {}, {"lr": 3e-4, "nll": 3.0, "epochs": 2}),
    (NLL_1, {}, {"lr": 5e-4, "nll": 3.0, "epochs": 2}),
    (NLL_1, {}, {"lr": 3e-4, "nll": 1.0, "epochs": 2}),
    (NLL_1, {}, {"lr": 5e-4, "nll": 3.0, "epochs": 3}),
    (NLL_3, {"pairs": 4, "strategy": "random-halves"}, {"lr": 3e-4, "nll": 3.0, "epochs": 1}),
    (SLOWER, {}, {"lr": 5e-4, "nll": 3.0, "epochs": 2}),
    (SLOWER, {}, {"lr": 5e-4, "nll": 3.0, "epochs": 3}),
]
"""Settings of critic, pairing and actor, which share the budget."""


def _online(lr: float, batch: int, epochs: int = 1, *rule_options: str, tasks: int = 16, group: int = 8) -> Options:
    """Return the options of a training whose steps have `tasks` x `group` dialogues."""
    options: Options = {"lr": lr, "batch": batch, "epochs": epochs, "tasks_per_step": tasks, "group": group}
    return options | {"rule_option": [*rule_options]}


ONLINE: list[Options] = [_online(1e-3, 128), _online(3e-4, 32), _online(3e-4, 32, 4)]
"""A step has 128 dialogues: one, four and sixteen updates a step."""
GRPO: list[Options] = [
    *ONLINE,
    _online(1e-3, 32),
    _online(1e-3, 32, 4),
    _online(3e-3, 128),
    _online(1e-3, 32, tasks=4),
    _online(2e-3, 32, tasks=4),
    _online(5e-4, 16, 2, tasks=4),
    _online(1e-3, 32, 1, "std=false", tasks=4),
    _online(1e-3, 64, tasks=4, group=16),
]
ISTAR: list[Options] = [
    *ONLINE,
    _online(1e-4, 32),
    _online(3e-4, 128),
    _online(3e-4, 32, 1, "weight=0.3"),
    _online(1e-3, 32, 1, "weight=0.3"),
    _online(1e-3, 32, 1, "weight=0.3", tasks=4),
    _online(3e-4, 32, tasks=4),
    _online(1e-3, 128, 1, "weight=0.3"),
    _online(1e-3, 32, 1, "weight=0.1"),
]
OPSD: list[Options] = [
    *ONLINE,
    _online(1e-3, 32, 4),
    _online(1e-3, 32),
    _online(3e-4, 32, 8),
    _online(1e-3, 32, tasks=4),
    _online(3e-4, 32, 4, "answers=false"),
    _online(3e-4, 32, 4, "form=top"),
    _online(1e-3, 32, 4, "form=top"),
    _online(3e-4, 32, 4, "teacher=live"),
]
SWEET_PG: list[Options] = [
    *ONLINE[:2],
    _online(3e-5, 128),
    _online(1e-4, 128),
    _online(1e-4, 32),
    _online(3e-4, 128, 1, "episode=true"),
    _online(1e-3, 128, 1, "episode=true", "weight=0.3"),
    _online(3e-4, 32, 1, "episode=true", "weight=0.3"),
    _online(1e-3, 128, 1, "episode=true", "weight=0.1"),
    _online(1e-3, 32, 1, "episode=true", "weight=0.1"),
    _online(1e-3, 32, 1, "episode=true", "weight=0.3", tasks=4),
]


def _actors(tried: Sequence[Options]) -> list[tuple[Options, Options, Options]]:
    return [({}, {}, actor) for actor in tried]


GRIDS: dict[str, list[tuple[Options, Options, Options]]] = {
    "rft": _actors(RFT),
    "multi-turn-dpo": _actors(MULTI_TURN_DPO),
    "grpo": _actors(GRPO),
    "istar": _actors(ISTAR),
    "opsd": _actors(OPSD),
    "sweet-pg": _actors(SWEET_PG),
    "sweet": SWEET,
}
"""By method: what is changed in its critic, its pairing and its actor."""


def variants(method: Method) -> Iterator[Method]:
    """Yield the method with each of its settings, under numbered names."""
    changes = GRIDS[method.name]
    assert len(changes) == BUDGET, "the budget is the same for all"
    for number, (critic, pair, actor) in enumerate(changes, 1):
        update = {
            "name": f"{method.name} {number}",
            "critic": method.critic | critic,
            "pair": method.pair | pair,
            "actor": method.actor | actor,
        }
        yield method.model_copy(update=update)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=RUNS / "tuning")
    parser.add_argument("--methods", default=",".join(TUNED))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--tasks", type=int, default=256)
    parser.add_argument("--train-tasks", type=int, default=StudySizes().train_tasks)
    parser.add_argument("--family", choices=FAMILIES, default=MICRO.name)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    names = options.methods.split(",")
    if unknown := set(names) - set(GRIDS):
        parser.error(f"no settings to try for {', '.join(sorted(unknown))}; there are {', '.join(GRIDS)}")
    chosen = {"tasks": options.family, "split": "validation", "eval_tasks": options.tasks}
    sizes = StudySizes.model_validate({**chosen, "train_tasks": options.train_tasks, **SIZES})
    methods = {name: tuple(variants(METHODS[name])) for name in names}
    jobs = [
        SeedJob(
            folder=options.folder.absolute(),
            seed=FIRST_SEED + number,
            sizes=sizes,
            methods=tuple(itertools.chain(*methods.values())),
            temperatures=(SAMPLED,),
            figures=False,
        )
        for number in range(options.seeds)
    ]
    with claimed(options.folder, sizes):
        failed = run_seeds(jobs, options.jobs, ConsoleReporter())
    results = with_kept(
        json.loads(options.out.read_bytes()) if options.out.exists() else {},
        {
            "schema_version": 1,
            "split": "validation",
            "tasks": options.tasks,
            "seeds": [job.seed for job in jobs],
            "sizes": sizes.outcome_settings(),
            "methods": {name: _results(jobs, rows) for name, rows in methods.items()},
            "failed": failed,
        },
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


def with_kept(existing: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the new results, with the methods of the existing ones that they lack.

    A method that is kept names the sizes, the tasks and the seeds that it was tuned with, where they are others.
    """
    conditions = ("sizes", "tasks", "seeds")
    kept = {}
    for name, method in existing.get("methods", {}).items():
        if name not in new["methods"]:
            tuned_with = {key: method.get(key, existing[key]) for key in conditions}
            others = {key: value for key, value in tuned_with.items() if value != new[key]}
            kept[name] = {**{key: value for key, value in method.items() if key not in conditions}, **others}
    methods = kept | new["methods"]
    return {**new, "methods": {name: methods[name] for name in (*GRIDS, *methods) if name in methods}}


def _results(jobs: Sequence[SeedJob], methods: Sequence[Method]) -> dict[str, Any]:
    """Return every setting with its success, and the best one."""
    rows: list[dict[str, Any]] = []
    for method in methods:
        by_seed = list(read_seeds(jobs, partial(success_of, method=method)).values())
        mean = round(fmean(by_seed), 6) if by_seed else None
        rows.append({"settings": method.settings(), "success": mean, "success_by_seed": by_seed})
    done = [row for row in rows if row["success"] is not None]
    return {"tried": rows, "best": max(done, key=lambda row: row["success"]) if done else None}


if __name__ == "__main__":
    main()
