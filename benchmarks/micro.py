"""The study on the micro tasks, whose results are in the README: `sweet demo --study` with all its methods.

    python -m benchmarks.micro [DIR] [--seeds 5] [--jobs N] [--methods a,b] [--out benchmarks/results/micro.json]

It takes an hour or two on two cores. Finished steps in DIR (default: runs/study) are not repeated, also not after the
process was killed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sweet.cli.commands.demo import STUDY
from sweet.cli.reporter import ConsoleReporter
from sweet.cli.study import show_study
from sweet.study.settings import METHODS, StudyConfig
from sweet.study.study import RESULTS, run_study

OUT = Path(__file__).parent / "results" / "micro.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=STUDY)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    config = StudyConfig.model_validate({"seeds": options.seeds, "jobs": options.jobs, "methods": options.methods})
    result = run_study(options.folder, config, ConsoleReporter())
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_bytes((options.folder / RESULTS).read_bytes())
    show_study(result)


if __name__ == "__main__":
    main()
