"""The study on a family of generated tasks: `sweet bench` with all its methods. README has that of `micro`.

    python -m benchmarks.micro [DIR] [--tasks micro] [--first-seed N] [--seeds 5] [--jobs N] [--methods a,b]
                               [--turns N] [--train-tasks N] [--eval-tasks N] [--no-figures] [--parts 8,2]
                               [--keep] [--no-differences] [--finished] [--no-seconds] [--note TEXT]
                               [--out benchmarks/results/micro.json]

It takes hours on two cores. Finished steps in DIR (default: runs/bench-micro, …) are not repeated,
also not after the process was killed. `--finished` does nothing more and writes the results of what is
finished, `--parts ""` leaves out the learning curves' trainings on parts of the tasks, and `--no-seconds` the
comparison at equal wall clock, where other work ran on the machine. The results of another family are in the file of
its name; a study with other `--turns` of a dialogue than the dataset's, or other `--train-tasks` or `--eval-tasks`,
needs a DIR and a file of its own. With `--keep`, methods, seeds and figures that DIR does not have are taken from the
existing results, so that a new method does not need all others again, and seeds can be done one after the other
(`--first-seed`). Its study must have `sweet`, to which every difference is, with nearly the same success on each seed
(`ALIKE`). `--keep --no-differences` adds methods of the same settings without differences, for which `sweet` is not
needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from sweet.cli import console
from sweet.cli.loops import show_study
from sweet.cli.reporter import ConsoleReporter
from sweet.errors import InputError
from sweet.paths import RUNS
from sweet.study.aggregate import aggregate
from sweet.study.outcomes import combined
from sweet.study.results import MethodResult, StudyResults, read_results
from sweet.study.settings import METHODS, StudyConfig
from sweet.study.study import RESULTS, run_study, seed_jobs
from sweet.tasks.micro.family import FAMILIES, MICRO

OUT = Path(__file__).parent / "results" / "micro.json"
SIZES = ("turns", "train_tasks", "eval_tasks")
"""The sizes that can be changed."""
FIGURES = ("best_of", "best_of_turns", "credit")
ALIKE = 0.03
"""How much the success of `sweet` on a seed may differ where methods are added: another version of a library rounds
otherwise. The new methods are compared with the `sweet` of their own study."""


def kept(existing: StudyResults, new: StudyResults, path: Path, *, differences: bool = True) -> StudyResults:
    """Return the new results, with the methods, seeds and figures of the existing ones that they lack.

    Args:
        path: of the existing results, for the error.
        differences: of the new methods to `sweet` and `sweet-plus`, which must be the existing ones. Without them the
            existing results are kept, with their versions, and only methods that they lack are added.

    Raises:
        InputError: the two are not comparable.
    """
    of_existing, of_new = ({one.method: one for one in results.methods} for results in (existing, new))
    same = {*new.seeds} <= {*existing.seeds} and existing.settings == new.settings
    before, now = (_success_of_sweet(results, new.seeds) for results in (existing, new))
    alike = len(before) == len(now) > 0 and all(
        abs(one - other) <= ALIKE for one, other in zip(before, now, strict=True)
    )
    if not same or (differences and not alike):
        raise _not_comparable(path)
    if not differences:
        methods = _alone(of_new) | of_existing
        return existing.model_copy(
            update={"methods": _in_order(methods), "note": existing.note if new.note is None else new.note}
        )
    if new.seeds != existing.seeds:
        return existing.model_copy(update={"methods": _in_order(of_existing | _with_seeds(existing, new))})
    return new.model_copy(
        update={
            "methods": _in_order(of_existing | of_new),
            **{name: getattr(new, name) or getattr(existing, name) for name in FIGURES},
        }
    )


def _with_seeds(existing: StudyResults, new: StudyResults) -> dict[str, MethodResult]:
    """Return the results of the methods that have outcomes by task, on all seeds of both. A method whose figures were
    recorded without outcomes keeps them, and gets these, with which other methods are compared."""
    with_outcomes = [one for one in existing.methods if one.outcomes]
    both = combined(existing.model_copy(update={"methods": with_outcomes}), new)
    found = {one.method: one for one in both.methods}
    for one in existing.methods:
        recorded = [round(fmean(outcome.by_task), 6) for outcome in one.outcomes.values()]
        if one.method in found and {*new.seeds} <= one.outcomes.keys():
            found[one.method] = one  # with its differences to methods that have no outcomes
        elif one.method in found and recorded != one.success_by_seed:
            added = found[one.method]  # their settings as they are written today
            found[one.method] = one.model_copy(update={"outcomes": added.outcomes, "settings": added.settings})
    return found


def _in_order(methods: dict[str, MethodResult]) -> list[MethodResult]:
    return [methods[name] for name in METHODS if name in methods]


def without_seconds(results: StudyResults) -> StudyResults:
    """Return the results without the comparison at equal wall clock: a busy machine's seconds compare nothing."""
    methods = [method.model_copy(update={"at_equal_seconds": None}) for method in results.methods]
    return results.model_copy(update={"methods": methods})


def _not_comparable(path: Path) -> InputError:
    return InputError(
        "The seeds, the settings, or the results of sweet are not those of the existing results.",
        path=path,
        fix="run all methods, without --keep",
    )


def _alone(methods: dict[str, MethodResult]) -> dict[str, MethodResult]:
    """Return methods without their differences to others."""
    none = dict.fromkeys(("against_sweet", "against_plus", "at_equal_seconds"))
    return {name: method.model_copy(update=none) for name, method in methods.items()}


def _success_of_sweet(results: StudyResults, seeds: Sequence[int]) -> list[float]:
    """Return what the differences of the other methods are taken from."""
    found = next((one.success_by_seed for one in results.methods if one.method == "sweet"), [])
    return [value for seed, value in zip(results.seeds, found, strict=False) if seed in seeds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--tasks", choices=FAMILIES, default=MICRO.name)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--turns", type=int)
    parser.add_argument("--train-tasks", type=int)
    parser.add_argument("--eval-tasks", type=int)
    parser.add_argument("--no-figures", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--no-differences", action="store_true")
    parser.add_argument("--no-seconds", action="store_true")
    parser.add_argument("--parts")
    parser.add_argument("--finished", action="store_true")
    parser.add_argument("--note", help="what readers must know about how it was run; stands below README's tables")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    resized = {name: getattr(options, name) for name in SIZES if getattr(options, name) is not None}
    if resized and (options.folder is None or options.out is None):
        parser.error("other sizes need a folder and an --out of their own")
    folder: Path = options.folder or RUNS / f"bench-{options.tasks}"
    out: Path = options.out or OUT.with_name(f"{options.tasks}.json")
    chosen = {name: getattr(options, name) for name in ("seeds", "jobs", "methods", "tasks")}
    if options.parts is not None:
        chosen["parts"] = tuple(map(int, filter(None, options.parts.split(","))))
    chosen |= {"seed": options.first_seed, "figures": not options.no_figures}
    config = StudyConfig.model_validate({**chosen, **resized})
    if options.finished:
        results = aggregate(seed_jobs(folder.absolute(), config), config.tasks)
    else:
        show_study(run_study(folder, config, ConsoleReporter()))
        results = read_results(folder / RESULTS)
    if options.no_seconds:
        results = without_seconds(results)
    if options.note is not None:
        results = results.model_copy(update={"note": options.note})
    if options.keep:
        results = kept(read_results(out), results, out, differences=not options.no_differences)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(results.model_dump_json(indent=1) + "\n", encoding="utf-8")
    console.show(console.safe_text(f"Written: {out}."))


if __name__ == "__main__":
    main()
