"""Check the results of a study that ran elsewhere, and add its methods to the results here.

A submission is the `study.json` of a study with a method of its own: of a credit rule of an installed package, or of
other options. It must be of the same tasks, start agent and sizes, which the digests and settings show. Its means and
intervals must follow from its outcomes by task, no method may have generated more tokens than `sweet` did here, and one
of its seeds, drawn at random, is run again here: its success must lie in the 95 % prediction interval of the submitted
seeds, which is as wide as seeds differ from one another (another processor rounds otherwise, and so trains another
actor). What is added are its methods that are not packaged, with their seeds.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from pydantic import ValidationError

from sweet.errors import InputError, UsageError, place_and_problem
from sweet.files import write_whole
from sweet.scoring.results.statistics import t_interval
from sweet.stages.base import Reporter, StageResult
from sweet.study.aggregate import digests, outcome
from sweet.study.outcomes import combined, method_results
from sweet.study.results import MethodResult, StudyMetrics, StudyResults, read_results
from sweet.study.seeds import run_seeds
from sweet.study.settings import METHODS, Method, StudyConfig, check_options, is_name
from sweet.study.study import RESULTS, claimed, result_of, seed_jobs
from sweet.study.study_steps import read_seeds
from sweet.units import percent

LEAST_SEEDS = 3
"""With fewer, the spread of the seeds is not known well enough to compare another run with."""
MORE_TOKENS = 1.05
"""Times the tokens of `sweet`: the last step, or dialogue, of a method may go over."""


def add_submission(file: Path, folder: Path, config: StudyConfig, reporter: Reporter) -> StageResult[StudyMetrics]:
    """Check a submission, run one of its seeds again in the folder, and write and return the results with it.

    Args:
        folder: of the study that it is added to, with its `study.json`.
        config: the jail and the processes of the seed that is run again.

    Raises:
        InputError: a file cannot be read, or says what does not follow from its outcomes.
        UsageError: the two studies are not comparable, or the seed did not reach what was submitted.
    """
    start = time.monotonic()
    ours, theirs = read_results(folder / RESULTS), read_results(file)
    submitted = {result.method: result for result in theirs.methods if result.method not in METHODS}
    _check(ours, theirs, submitted, file)
    results = combined(ours, theirs.model_copy(update={"methods": list(submitted.values())}))
    methods = {name: _method(result, file) for name, result in submitted.items()}
    sizes = StudyConfig.model_validate({**ours.settings, "figures": False, "sandbox": config.sandbox})
    if digests(sizes) != theirs.digests:
        fix = "submit results of the same version of the tasks and of the agent"
        raise UsageError("The tasks, or the weights of the start agent, are others here.", where=file, fix=fix)
    seed = random.SystemRandom().choice(theirs.seeds)
    reporter.say(f"Running seed {seed} of {', '.join(methods)} again.")
    jobs = seed_jobs(folder.absolute(), sizes.model_copy(update={"seed": seed, "seeds": 1}), methods)
    with claimed(folder, sizes, jobs):
        if failed := run_seeds(jobs, 1, reporter):
            raise UsageError("\n".join(["The seed could not be run again.", *failed]), where=folder)
        for name, method in methods.items():
            again = fmean(read_seeds(jobs, partial(outcome, method=method))[seed].by_task)
            low, high = _expected(submitted[name].success_by_seed)
            if not low <= again <= high:
                what = f"{name} reached {percent(again)} with seed {seed} here; the seeds submitted let expect "
                raise UsageError(f"{what}{percent(low)} to {percent(high)}.", where=file)
            reporter.say(f"{name}: {percent(again)} here, submitted {percent(submitted[name].success.mean)}.")
        write_whole(folder / RESULTS, (results.model_dump_json(indent=1) + "\n").encode())
    return result_of(folder, results, start)


def _check(ours: StudyResults, theirs: StudyResults, submitted: dict[str, MethodResult], file: Path) -> None:
    """Raise an error where the submission contradicts itself, or is not comparable."""
    if not submitted:
        fix = "run it with --methods and a file with methods of your own"
        raise UsageError("All methods of the submission are packaged ones.", where=file, fix=fix)
    wrong = [result.method for result in theirs.methods if not _is_whole(result, theirs)]
    if not wrong:
        settings = {result.method: result.settings for result in theirs.methods}
        computed = method_results({result.method: result.outcomes for result in theirs.methods}, settings)
        wrong = [result.method for result in theirs.methods if result not in computed]
    if wrong:
        what = f"The figures of {wrong[0]!r} do not follow from the outcomes of {LEAST_SEEDS} seeds or more."
        raise InputError(what, path=file, fix="submit the study.json that sweet bench has written")
    budget = max((result.generated_tokens or 0 for result in ours.methods if result.method == "sweet"), default=0)
    for name, result in submitted.items():
        tokens = [tokens for tokens in result.generated_tokens_by_seed if tokens is not None]
        if len(tokens) < len(theirs.seeds) or max(tokens) > MORE_TOKENS * budget:
            what = f"{name!r} is not known to have learned from at most {budget:,.0f} generated tokens, as sweet."
            raise UsageError(what, where=file, fix="compare with the method sweet, at its tokens")


def _is_whole(result: MethodResult, results: StudyResults) -> bool:
    """Return whether a method has a name, and an outcome on each task for each of enough seeds."""
    by_task = [reached.success for reached in result.outcomes.values()]
    shaped = all(len(tasks) == results.test_tasks and set(tasks) <= set("01") for tasks in by_task)
    return shaped and [*result.outcomes] == results.seeds and len(by_task) >= LEAST_SEEDS and is_name(result.method)


def _method(entry: MethodResult, file: Path) -> Method:
    """Return a submitted method.

    Raises:
        UsageError: it is no method here, or its rule is of a package that is not installed in the same version.
    """
    table = {name: value for name, value in entry.settings.items() if name != "package"}
    try:
        method = Method.model_validate({"name": entry.method, "group": "others", "what": "", **table})
    except ValidationError as error:
        what = place_and_problem(error)
        raise InputError(f"{entry.method!r} has no settings of a method: {what}.", path=file) from error
    check_options(method, f"{file}, {entry.method}")
    if method.settings() != entry.settings:
        package = entry.settings.get("package", "no other package")
        what = f"{entry.method!r} is no method here: its rule is of {package}, or its settings are not all of a method."
        raise UsageError(what, where=file, fix="install the package, and submit what sweet bench has written")
    return method


def _expected(success: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % prediction interval of a further seed (Student's t)."""
    interval = t_interval(success)
    assert interval is not None, "there are enough seeds"
    half = (interval.high - interval.mean) * math.sqrt(len(success) + 1)
    return interval.mean - half, interval.mean + half
