"""The study on the micro tasks, whose results stand in the README: `sweet demo --study` with all its methods.

    python -m benchmarks.micro [DIR] [--seeds 5] [--jobs N] [--methods a,b] [--out benchmarks/results/micro.json]

Takes an hour or two on two cores. What is finished in DIR (runs/study where not given) is not done again, after a kill
neither.
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
    given = parser.parse_args()
    config = StudyConfig.model_validate({"seeds": given.seeds, "jobs": given.jobs, "methods": given.methods})
    result = run_study(given.folder, config, ConsoleReporter())
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_bytes((given.folder / RESULTS).read_bytes())
    show_study(result)


if __name__ == "__main__":
    main()
