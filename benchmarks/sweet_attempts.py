"""Attempts at a better SWEET, on the validation tasks of `micro`, the last ones on those of `micro-parts`.

    python -m benchmarks.sweet_attempts [DIR] [--names a,b] [--seeds 3]   run attempts, update the results
    python -m benchmarks.sweet_attempts --page                          write docs/results.md's table from them

ATTEMPTS has every attempt, also those that did not help. Each actor plays DIALOGUES dialogues on every validation task
at temperature 1, on seeds that the study does not use; no test task is used. Attempts with the same seed share their
dialogues, replies and critics. Those without a method were made with code that the program does not have, because they
did not pay: their results are kept, and they cannot be run again from here.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.micro_tuning import FIRST_SEED
from sweet.cli.generated import put_between
from sweet.cli.reporter import ConsoleReporter
from sweet.files import write_whole
from sweet.paths import RUNS
from sweet.pipeline.steps import Step, StepCache
from sweet.runs.run import Run
from sweet.stages.base import Reporter
from sweet.study.settings import METHODS, Method, Options, StudySizes
from sweet.study.study_steps import StudySteps
from sweet.tasks.micro.family import PARTS as FAMILY_OF_PARTS
from sweet.view.safe_markdown import table

OUT = Path(__file__).parent / "results" / "sweet-attempts.json"
PAGE = Path("docs/results.md")
BEGIN = "<!-- attempts: python -m benchmarks.sweet_attempts --page -->"
END = "<!-- end of attempts -->"

ORDERS = (
    "Couples of different replies to one turn of the training dialogues that a judge orders as the generator does, in "
    "per cent; and the generator's worth of the two replies that the judge ranks first, 1 if both are useful. "
    "Means over three seeds where none is named; chance reaches 50."
)
COUPLES, BEST = "all couples", "best two"
OF_PARTS = "The same on the validation tasks of `micro-parts`:"
PARTS: dict[str, Any] = {"tasks": FAMILY_OF_PARTS.name}

TASKS, DIALOGUES = 256, 2
"""Validation tasks, and dialogues on each."""

SHARE: Options = {"pairs": 4, "min_gap_share": 0.6}
SUM: Options = {"nll": 1.0, "rule_option": ["likelihood=sum"]}


@dataclass(frozen=True)
class Attempt:
    """Attributes:
    name: the key of its results.
    changed: what it changed, in words.
    concluded: from its results, in words.
    method: None for one that cannot be run by the program.
    sizes: of the study, where they differ.
    """

    name: str
    changed: str
    concluded: str
    method: Method | None = None
    sizes: dict[str, Any] = field(default_factory=dict)


def _changed(base: str, **changes: Options) -> Method:
    """Return a method of the study with other options of its stages."""
    method = METHODS[base]
    return method.model_copy(update={stage: getattr(method, stage) | options for stage, options in changes.items()})


REFERENCE = METHODS["no-info-reference"]
PLUS = METHODS["sweet-plus"]


def _of_plus(name: str, changed: str, concluded: str, *, sizes: Options | None = None, **changes: Options) -> Attempt:
    return Attempt(name, changed, concluded, _changed("sweet-plus", **changes), dict(sizes or {}))


ATTEMPTS: tuple[Attempt, ...] = (
    Attempt("sweet", "The study's `sweet`.", "", METHODS["sweet"]),
    Attempt("no-info-reference", "At ranking the reference does not see c.", "Better on each seed.", REFERENCE),
    Attempt(
        "reference, outcome",
        "The same, and answers are ordered by their outcome: solved above all, failing below all.",
        "Mends the couples useless over early, and is not needed once pairs are clearer (below). Dropped.",
    ),
    Attempt(
        "clear pairs",
        "`no-info-reference` with up to 4 pairs of at least 0.6 of the turn's largest difference.",
        "Better on each seed: the chosen reply is good in 94 % of the pairs instead of 91 %, and there are more pairs.",
        _changed("no-info-reference", pair=SHARE),
    ),
    Attempt(
        "clear pairs, equation (3)",
        "The same pairs by `sweet`'s own ranking.",
        "The reference matters more than the pairs.",
        _changed("sweet", pair=SHARE),
    ),
    Attempt("clear pairs, outcome", "`clear pairs`, answers by their outcome.", "No better."),
    Attempt("clear pairs, outcome, beta 0.5", "The same with beta 0.5.", "A little better: beta is worth trying."),
    Attempt(
        "clear pairs, two rounds",
        "Two rounds of 150 tasks instead of one of 300, the same number of tokens; critic and actor learn from both.",
        "Much worse: the second round's actor writes more wrong values.",
    ),
    Attempt(
        "summed",
        "`clear pairs` with likelihood=sum, weight 1.",
        "Better on both seeds: answers of 12 tokens count for more.",
        _changed("no-info-reference", pair=SHARE, actor=SUM),
    ),
    Attempt(
        "summed, weight 3",
        "The same with weight 3.",
        "No better.",
        _changed("no-info-reference", pair=SHARE, actor=SUM | {"nll": 3.0}),
    ),
    Attempt(
        "summed, 4 epochs",
        "`summed`, 4 epochs instead of 2.",
        "Worse.",
        _changed("no-info-reference", pair=SHARE, actor=SUM | {"epochs": 4}),
    ),
    Attempt(
        "summed, 8 candidates",
        "`summed` with 8 candidates at twice as many turns, at most 2 pairs each.",
        "No better at the same number of tokens.",
        _changed("no-info-reference", pair=SHARE | {"pairs": 2}, actor=SUM),
        {"candidates": 8, "fraction": 0.3},
    ),
    Attempt("sweet-plus", "`summed` with beta 0.5.", "The best; the study's `sweet-plus`.", PLUS),
    _of_plus("sweet-plus, 1 epoch", "1 epoch instead of 2.", "Worse.", actor={"epochs": 1}),
    Attempt(
        "sweet-plus, equation (3)",
        "The reference sees c, as in `sweet`.",
        "Most of the gain needs the reference that does not see c.",
        PLUS.model_copy(update={"rank": {}}),
    ),
    Attempt(
        "sweet-plus, ranked by sums",
        "The critic's log-ratios summed over a reply's tokens, not averaged.",
        "Orders couples better (below), and is no better for the actor.",
    ),
    Attempt(
        "sweet-plus, untrained",
        "The initial agent judges instead of the critic; pairs and actor as in `sweet-plus`.",
        "Level on one seed and worse on two: it orders answers worse, and its actors write more wrong values. The "
        "critic's training pays.",
        _changed("untrained", pair=SHARE, actor=PLUS.actor),
    ),
    Attempt(
        "sweet-plus, oracle",
        "The generator's knowledge judges; pairs and actor as in `sweet-plus`.",
        "The bound of these pairs and this training: ten points above `oracle`, eight above `sweet-plus`.",
        _changed("oracle", pair=SHARE, actor=PLUS.actor),
    ),
    Attempt(
        "critic trained without c",
        "`sweet-plus`, and in the critic's training, too, the reference does not see c.",
        "Level: the start of the critic is then that of `untrained`, and the ranking has the same sum. Not built in.",
    ),
    Attempt(
        "critic trained without c, equation (3)",
        "The same critic, but at ranking the reference sees c.",
        "Much worse: what that critic leaves to the reference is missing.",
    ),
    Attempt(
        "sweet-lookahead",
        "No critic: questions are judged by how much likelier the human's reply makes the solution, answers by their "
        "reward; pairs and actor as in `sweet-plus`.",
        "Better on average, and steadier. The study's `sweet-lookahead`.",
        METHODS["sweet-lookahead"],
    ),
    Attempt(
        "look ahead, critic",
        "The same, and the critic of `sweet-plus` orders the answers that fail.",
        "Level with it, for the price of a critic. Not built in.",
    ),
    Attempt(
        "look ahead, lines",
        "The same, and answers that fail are ordered by their lines that are the solution's.",
        "As good as the oracle, but only where an answer can be compared with the solution line by line. It shows that "
        "what is left is the order of answers, which the tests give in 74 % of the couples partial over wrong.",
    ),
    Attempt(
        "look ahead, answers not ordered",
        "The same without an order of the answers that fail, each worth -2.",
        "Much worse.",
    ),
    Attempt(
        "sweet-lookahead, again",
        "The same method beside the next row, on another machine, so with other dialogues.",
        "Another draw of the dialogues moves seed 1001 by seven points.",
        METHODS["sweet-lookahead"],
    ),
    Attempt(
        "sweet-anchored",
        "The same, and the likelihood of one reply at each turn that gives no pair (`sweet pair --unpaired best`).",
        "Level with it, over two seeds. The study's `sweet-anchored`.",
        METHODS["sweet-anchored"],
    ),
    Attempt("oracle", "The study's `oracle`, with the pairs and the actor of `sweet`.", "", METHODS["oracle"]),
    Attempt(
        "parts, sweet-lookahead",
        "The study's `sweet-lookahead`.",
        "A quarter of the ranked turns gives no pair, and the actor forgets what to say at them (below).",
        METHODS["sweet-lookahead"],
        PARTS,
    ),
    Attempt(
        "parts, sweet-anchored",
        "The study's `sweet-anchored`.",
        "Its actor keeps the form of parts and answers (below).",
        METHODS["sweet-anchored"],
        PARTS,
    ),
)


class _ValidationSteps(StudySteps):
    """The steps of a study, with several dialogues on each task of an evaluation."""

    def validate(self, method: Method) -> Step:
        """Return the scores of the method's actor."""
        actor = self.cache.file(self.making(method)[-1])
        played = self._play("validation", self.sizes.eval_tasks, samples=DIALOGUES, agent=str(actor))
        return self._score(played)


def read() -> dict[str, Any]:
    """Return the results so far."""
    results: dict[str, Any] = json.loads(OUT.read_text(encoding="utf-8"))
    return results


def measure(folder: Path, attempt: Attempt, seed: int, reporter: Reporter) -> float:
    """Return the success of the actor of an attempt, and do the steps that are missing."""
    assert attempt.method is not None, attempt.name
    sizes = StudySizes(split="validation", eval_tasks=TASKS, **attempt.sizes)
    cache = StepCache(Run.open_or_create(folder / f"seed-{seed}", "code"), reporter)
    return round(float(_ValidationSteps(cache, sizes, seed).validate(attempt.method).metrics["success_rate"]), 6)


def block(results: dict[str, Any], attempts: Sequence[Attempt] = ATTEMPTS) -> str:
    """Return the Markdown of docs/results.md between the markers."""
    seeds = sorted({seed for found in results["success"].values() for seed in found})
    of_micro, of_parts = (
        table(
            ("attempt", "mean", *seeds, "what it changed, and what was concluded"),
            [_row(one, results["success"][one.name], seeds) for one in attempts if ("tasks" in one.sizes) == parts],
            f"-{'r' * (1 + len(seeds))}-",
        )
        for parts in (False, True)
    )
    orders = results["orders"]
    columns = [name for name in next(iter(orders.values())) if name != "best"]
    judges = table(
        ("judge", *(COUPLES if name == "share" else name.replace(">", " over ") for name in columns), BEST),
        [
            (name, *(_percent(_mean(found[column])) for column in columns), f"{_mean(found['best']):.2f}")
            for name, found in orders.items()
        ],
    )
    return f"{of_micro}\n\n{OF_PARTS}\n\n{of_parts}\n\n{ORDERS}\n\n{judges}\n"


def _row(attempt: Attempt, by_seed: dict[str, float], seeds: Iterable[str]) -> tuple[str, ...]:
    mean = _mean(by_seed)
    numbers = ["" if value is None else _percent(value) for value in (mean, *map(by_seed.get, seeds))]
    return (f"`{attempt.name}`", *numbers, f"{attempt.changed} {attempt.concluded}".strip())


def _mean(by_seed: dict[str, float]) -> float:
    return fmean(by_seed.values())


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=RUNS / "attempts")
    parser.add_argument("--names", help="attempts, separated by commas; all that can be run where not given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page", action="store_true", help="write the page and run nothing")
    options = parser.parse_args()
    results = read()
    if not options.page:
        names = options.names.split(",") if options.names else [a.name for a in ATTEMPTS if a.method is not None]
        for attempt in ATTEMPTS:
            for seed in range(FIRST_SEED, FIRST_SEED + options.seeds) if attempt.name in names else ():
                success = measure(options.folder.absolute(), attempt, seed, ConsoleReporter())
                results["success"].setdefault(attempt.name, {})[str(seed)] = success
                write_whole(OUT, (json.dumps(results, indent=1) + "\n").encode())
    page = PAGE.read_text(encoding="utf-8")
    write_whole(PAGE, put_between(page, BEGIN, END, block(results)).encode())


if __name__ == "__main__":
    main()
