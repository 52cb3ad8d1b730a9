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
    submitted = {one.method: one for one in theirs.methods if one.method not in METHODS}
    _check(ours, theirs, submitted, file)
    found = combined(ours, theirs.model_copy(update={"methods": list(submitted.values())}))
    methods = {name: _method(one, file) for name, one in submitted.items()}
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
        write_whole(folder / RESULTS, (found.model_dump_json(indent=1) + "\n").encode())
    return result_of(folder, found, start)


def _check(ours: StudyResults, theirs: StudyResults, submitted: dict[str, MethodResult], file: Path) -> None:
    """Raise an error where the submission contradicts itself, or is not comparable."""
    if not submitted:
        fix = "run it with --methods and a file with methods of your own"
        raise UsageError("All methods of the submission are packaged ones.", where=file, fix=fix)
    wrong = [one.method for one in theirs.methods if not _is_whole(one, theirs)]
    if not wrong:
        settings = {one.method: one.settings for one in theirs.methods}
        computed = method_results({one.method: one.outcomes for one in theirs.methods}, settings)
        wrong = [one.method for one in theirs.methods if one not in computed]
    if wrong:
        what = f"The figures of {wrong[0]!r} do not follow from the outcomes of {LEAST_SEEDS} seeds or more."
        raise InputError(what, path=file, fix="submit the study.json that sweet bench has written")
    budget = max((one.generated_tokens or 0 for one in ours.methods if one.method == "sweet"), default=0)
    for one in submitted.values():
        tokens = [tokens for tokens in one.generated_tokens_by_seed if tokens is not None]
        if len(tokens) < len(theirs.seeds) or max(tokens) > MORE_TOKENS * budget:
            what = f"{one.method!r} is not known to have learned from at most {budget:,.0f} generated tokens, as sweet."
            raise UsageError(what, where=file, fix="compare with the method sweet, at its tokens")


def _is_whole(one: MethodResult, results: StudyResults) -> bool:
    """Return whether a method has a name, and an outcome on each task for each of enough seeds."""
    by_task = [reached.success for reached in one.outcomes.values()]
    shaped = all(len(tasks) == results.test_tasks and set(tasks) <= set("01") for tasks in by_task)
    return shaped and [*one.outcomes] == results.seeds and len(by_task) >= LEAST_SEEDS and is_name(one.method)


def _method(one: MethodResult, file: Path) -> Method:
    """Return a submitted method.

    Raises:
        UsageError: it is no method here, or its rule is of a package that is not installed in the same version.
    """
    table = {name: value for name, value in one.settings.items() if name != "package"}
    try:
        method = Method.model_validate({"name": one.method, "group": "others", "what": "", **table})
    except ValidationError as error:
        what = place_and_problem(error)
        raise InputError(f"{one.method!r} has no settings of a method: {what}.", path=file) from error
    check_options(method, f"{file}, {one.method}")
    if method.settings() != one.settings:
        package = one.settings.get("package", "no other package")
        what = f"{one.method!r} is no method here: its rule is of {package}, or its settings are not all of a method."
        raise UsageError(what, where=file, fix="install the package, and submit what sweet bench has written")
    return method


def _expected(success: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % prediction interval of a further seed (Student's t)."""
    found = t_interval(success)
    assert found is not None, "there are enough seeds"
    half = (found.high - found.mean) * math.sqrt(len(success) + 1)
    return found.mean - half, found.mean + half
