"""A study from elsewhere: added once it is checked and a seed was run again, and refused with what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import SweetError
from sweet.stages.base import Silent
from sweet.study.aggregate import digests
from sweet.study.outcomes import method_results
from sweet.study.results import Estimate, SeedOutcome, StudyResults, read_results
from sweet.study.settings import METHODS, StudyConfig
from sweet.study.study import run_study
from sweet.study.submission import add_submission
from tests.study.test_study import SIZES

SEEDS = [0, 1, 2]
TABLE = '[start]\nwhat = "the initial agent under another name"\nlearns = "nothing"\n'


def with_outcomes(results: StudyResults, method: str, success: str, tokens: int = 0) -> StudyResults:
    """Return results in which a method has the success in all seeds, with the figures that follow."""
    one = SeedOutcome(success=success, tests_passed=0.5, greedy_success=0.5, generated_tokens=tokens, seconds=1.0)
    settings = {found.method: found.settings for found in results.methods}
    settings.setdefault(method, METHODS.get(method, METHODS["zero-shot"]).settings())
    outcomes = {found.method: found.outcomes for found in results.methods} | {method: dict.fromkeys(SEEDS, one)}
    return results.model_copy(update={"methods": method_results(outcomes, settings)})


@pytest.mark.usefixtures("forked_python")
def test_a_submission_is_checked_run_again_and_added(tmp_path: Path) -> None:
    table = tmp_path / "mine.toml"
    table.write_text(TABLE)
    config = StudyConfig.model_validate({**SIZES, "methods": str(table), "seeds": 3})
    theirs = run_study(tmp_path / "theirs", config, Silent()).metrics.study
    assert theirs.digests == digests(config.sizes())
    (ours := tmp_path / "ours").mkdir()
    existing = with_outcomes(theirs.model_copy(update={"methods": []}), "sweet", "0101", tokens=1000)

    def submit(submitted: StudyResults) -> StudyResults:
        (ours / "study.json").write_text(existing.model_dump_json())
        (tmp_path / "submitted.json").write_text(submitted.model_dump_json())
        add_submission(tmp_path / "submitted.json", ours, StudyConfig(), Silent())
        return read_results(ours / "study.json")

    found = submit(theirs)
    assert [one.method for one in found.methods] == ["sweet", "start"]
    assert found.methods[1].outcomes == theirs.methods[0].outcomes
    assert found.methods[1].against_sweet is not None
    again = submit(with_outcomes(theirs, "start", theirs.methods[0].outcomes[0].success))
    assert again.seeds == SEEDS

    def changed(**values: Any) -> StudyResults:
        return theirs.model_copy(update=values)

    start = theirs.methods[0]

    def settings(**more: Any) -> StudyResults:
        return changed(methods=[start.model_copy(update={"settings": {**start.settings, **more}})])

    def outcomes(**more: Any) -> StudyResults:
        found = {seed: one.model_copy(update=more) for seed, one in start.outcomes.items()}
        return changed(methods=method_results({"start": found}, {"start": start.settings}))

    foreign = start.model_copy(update={"settings": {**start.settings, "package": "their-credit 2.0"}})
    lies: dict[str, Callable[[], StudyResults]] = {
        r"'start' do not follow": lambda: changed(methods=[start.model_copy(update={"success": Estimate(mean=0.9)})]),
        r"'start' do not follow from": lambda: changed(methods=[start.model_copy(update={"seconds": 9.0}), start]),
        r"'sweet\\n' do not": lambda: changed(methods=[start.model_copy(update={"method": "sweet\n"})]),
        r"'start' do not follow from the outcomes of 3": lambda: changed(seeds=[0, 1]),
        r"start reached .* here; the seeds submitted let expect 100": lambda: with_outcomes(theirs, "start", "1111"),
        r"at most 1,000 generated": lambda: with_outcomes(theirs, "start", "0000", tokens=1051),
        r"of the same settings": lambda: changed(settings={**theirs.settings, "train_tasks": 9}),
        r"are others here": lambda: changed(digests={**theirs.digests, "agent": "0"}),
        r"All methods of the submission": lambda: with_outcomes(changed(methods=[]), "rft", "0000"),
        r"its rule is of their-credit 2.0": lambda: changed(methods=[foreign]),
        r"'start' is no method here: its rule is of no other package": lambda: settings(curve=True),
        r"'start' has no settings of a method: there is no fast": lambda: settings(fast=True),
        r"unknown key 'train-actor\.bta'": lambda: settings(actor={"bta": 1}),
        r"seeds\.2: should be less than or equal to 4294967295": lambda: changed(seeds=[0, 1, 2**32]),
        **{
            rf"methods\.0\.outcomes\.0\.{name}: should be": partial(outcomes, **{name: value})
            for name, value in [
                *(("tests_passed", 5.0), ("greedy_success", -1.0), ("agreement", 9.0)),
                *(("generated_tokens", -5), ("seconds", -1.0), ("seconds", 2.0**60)),
            ]
        },
    }
    for what, lie in lies.items():
        with pytest.raises(SweetError, match=what):
            submit(lie())
        assert read_results(ours / "study.json") == existing, what


def test_a_file_of_methods_says_what_is_wrong_in_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    wrong = {
        '[mine]\nlearn = "rft"': r"there is no learn\. Did you mean learns\?",
        '[rft]\nwhat = "mine"': "cannot be called 'rft'",
        '["../x"]\nwhat = "mine"': "cannot be called",
        'mine = "rft"': "no table",
        "[mine": "not TOML",
        '[mine]\nwhat = "x"\nlearns = "swet"': "swet",
        "": "The file has no method",
        '[mine]\nname = "rft"': "it is no table, or has a key name",
        "[mine]\nactor = { bta = 1 }": r"unknown key 'train-actor\.bta'\. Did you mean train-actor\.beta",
        '[mine]\njudge = "critic"\ncritic = { epochs = "few" }': r"train-critic\.epochs: should be a valid",
        "[mine]\nrank = { reference = 3, judge = 4 }": r"rank\.",
        "[mine]\npair = { pairs = 0 }": r"pair\.pairs",
        '[mine]\nlearns = "grpo"\nonline = true\nactor = { warmup = 1 }': r"unknown key 'train-online\.warmup'",
    }
    for text, what in wrong.items():
        file.write_text(text)
        with pytest.raises(SweetError, match=what):
            run_study(tmp_path / "study", StudyConfig.model_validate({"methods": f"rft,{file}"}), Silent())
    assert not (tmp_path / "study").exists()
