"""The study on the micro tasks, whose results are in the README: `sweet demo --study` with all its methods.

    python -m benchmarks.micro [DIR] [--seeds 5] [--jobs N] [--methods a,b] [--no-figures] [--keep]
                               [--out benchmarks/results/micro.json]

It takes two or three hours on two cores. Finished steps in DIR (default: runs/study) are not repeated, also not after
the process was killed. With `--keep`, methods and figures that DIR does not have are taken from the existing results,
so that a new method does not need all others again; its study must have `sweet`, with the same success on each seed,
because every difference is to `sweet` on the same tasks and seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sweet.cli.commands.demo import STUDY
from sweet.cli.reporter import ConsoleReporter
from sweet.cli.study import show_study
from sweet.errors import InputError
from sweet.study.results import MethodResult, StudyResults, read_results
from sweet.study.settings import METHODS, StudyConfig
from sweet.study.study import RESULTS, run_study

OUT = Path(__file__).parent / "results" / "micro.json"


FIGURES = ("best_of", "best_of_turns", "offline", "credit")


def kept(existing: StudyResults, new: StudyResults, path: Path) -> StudyResults:
    """Return the new results, with the methods and figures of the existing ones that they lack.

    Args:
        path: of the existing results, for the error.

    Raises:
        InputError: the two are not comparable.
    """
    if existing.settings.get("equal", "dialogues") != new.settings.get("equal", "dialogues"):
        raise _not_comparable(path)
    of_existing, of_new = ({one.method: one for one in results.methods} for results in (existing, new))
    settings = new.settings | existing.settings  # a setting that earlier versions lack is that of the new study
    same = (existing.seeds, settings) == (new.seeds, new.settings)
    if not same or _success_of_sweet(of_existing) != _success_of_sweet(of_new) or "sweet" not in of_new:
        raise _not_comparable(path)
    methods = of_existing | of_new
    return new.model_copy(
        update={
            "methods": [methods[name] for name in METHODS if name in methods],
            **{name: getattr(new, name) or getattr(existing, name) for name in FIGURES},
        }
    )


def _not_comparable(path: Path) -> InputError:
    return InputError(
        "The seeds, the settings, or the results of sweet are not those of the existing results.",
        path=path,
        fix="run all methods, without --keep",
    )


def _success_of_sweet(methods: dict[str, MethodResult]) -> list[float]:
    """Return what the differences of the other methods are taken from."""
    return methods["sweet"].success_by_seed if "sweet" in methods else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=STUDY)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--no-figures", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    chosen = {"seeds": options.seeds, "jobs": options.jobs, "methods": options.methods}
    config = StudyConfig.model_validate({**chosen, "figures": not options.no_figures})
    result = run_study(options.folder, config, ConsoleReporter())
    results = read_results(options.folder / RESULTS)
    if options.keep:
        results = kept(read_results(options.out), results, options.out)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(results.model_dump_json(indent=1) + "\n", encoding="utf-8")
    show_study(result)


if __name__ == "__main__":
    main()
