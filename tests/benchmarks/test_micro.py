"""Results of new methods are added to those of an earlier study only where both are comparable."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import micro
from benchmarks.micro import kept, main, without_seconds
from sweet.errors import InputError
from sweet.study.outcomes import method_results
from sweet.study.results import SeedOutcome, StudyResults
from sweet.study.settings import METHODS
from sweet.study.study_steps import SeedJob
from tests.results.study_results import learned, study, study_dict

PATH = Path("micro.json")


def only(*names: str, **changes: Any) -> StudyResults:
    """A study of these methods, without figures."""
    whole = study_dict()
    methods = [{**method, "seconds": 1.0} for method in whole["methods"] if method["method"] in names]
    figures: dict[str, Any] = dict.fromkeys(("best_of", "best_of_turns", "credit"))
    return StudyResults.model_validate({**whole, **figures, "methods": methods, **changes})


def test_what_the_new_study_lacks_is_kept() -> None:
    existing, new = study(), only("upstream", "sweet", best_of_turns=study_dict()["best_of"])
    found = kept(existing, new, PATH)
    assert [method.method for method in found.methods] == list(METHODS)
    seconds = {method.method: method.seconds for method in found.methods}
    assert {name for name, value in seconds.items() if value == 1.0} == {"upstream", "sweet"}
    assert (found.best_of, found.credit) == (existing.best_of, existing.credit)
    assert found.best_of_turns == new.best_of_turns != existing.best_of_turns


def test_methods_can_be_added_without_differences_where_sweet_is_missing_or_another() -> None:
    existing = study(methods=[one for one in study_dict()["methods"] if one["method"] != "rloo"])
    other = {**only("sweet").methods[0].model_dump(), "success_by_seed": [0.25] * 5}
    for new in (only("rloo"), only("rloo", methods=[only("rloo").methods[0].model_dump(), other])):
        found = {one.method: one for one in kept(existing, new, PATH, differences=False).methods}
        assert [*found] == list(METHODS)
        assert found["rloo"].success_by_seed == new.methods[0].success_by_seed
        assert (found["rloo"].against_sweet, found["rloo"].against_plus) == (None, None)
        assert found["sweet"] == next(one for one in existing.methods if one.method == "sweet")
    noted = only("rloo", note="Of another processor.", versions={"torch": "3"})
    assert kept(existing, noted, PATH, differences=False).versions == existing.versions
    assert kept(existing, noted, PATH, differences=False).note == "Of another processor."
    with pytest.raises(InputError, match="without --keep"):
        kept(existing, only("rloo", seeds=[1, 2, 3, 4, 5]), PATH, differences=False)


def of_seed(seed: int, **successes: str) -> StudyResults:
    """A study of one seed with the successes of a method on three tasks."""
    figures = {"tests_passed": 0.5, "greedy_success": 0.5, "generated_tokens": 7, "seconds": 1.0}
    outcomes = {name: {seed: SeedOutcome(success=success, **figures)} for name, success in successes.items()}
    methods = [one.model_dump() for one in method_results(outcomes, {name: {} for name in outcomes})]
    return only(methods=methods, seeds=[seed])


def test_seeds_of_new_methods_are_added_one_after_the_other() -> None:
    whole = study_dict()["methods"]
    next(one for one in whole if one["method"] == "sweet")["success_by_seed"] = [0.0, 1.0, 0.5, 0.5, 0.5]
    results = study(methods=[one for one in whole if one["method"] != "gigpo"])
    for new in (of_seed(0, sweet="000", gigpo="110"), of_seed(1, sweet="111", gigpo="100")):
        results = kept(results, new, PATH)
    found = {one.method: one for one in results.methods}
    assert results.seeds == [0, 1, 2, 3, 4]
    assert found["gigpo"].success_by_seed == pytest.approx([2 / 3, 1 / 3], abs=1e-6)
    assert found["gigpo"].against_sweet is not None
    assert found["gigpo"].against_sweet.difference.mean == pytest.approx(0.0, abs=1e-6)
    assert (found["sweet"].success_by_seed, sorted(found["sweet"].outcomes)) == ([0.0, 1.0, 0.5, 0.5, 0.5], [0, 1])
    assert found["rft"] == next(one for one in study().methods if one.method == "rft")
    both = of_seed(1, sweet="111", gigpo="000", infopo="100")  # gigpo has this seed
    assert next(one for one in kept(results, both, PATH).methods if one.method == "gigpo") == found["gigpo"]
    with pytest.raises(InputError, match="without --keep"):
        kept(results, of_seed(2, sweet="001", gigpo="110"), PATH)


def test_the_comparison_at_equal_wall_clock_can_be_left_out() -> None:
    results = study(methods=[learned(1, "rft"), learned(3, "sweet")])
    assert all(method.at_equal_seconds is not None for method in results.methods)
    found = without_seconds(results)
    assert [method.at_equal_seconds for method in found.methods] == [None, None]
    assert [method.curve for method in found.methods] == [method.curve for method in results.methods]


@pytest.mark.parametrize(
    "new",
    [
        only("upstream"),
        only("upstream", "sweet", seeds=[1, 2, 3, 4, 5]),
        only("upstream", "sweet", settings={**study_dict()["settings"], "train_tasks": 7}),
        only("upstream", "sweet", settings={**study_dict()["settings"], "equal": "tokens"}),
        only("upstream", "sweet", methods=[{**only("sweet").methods[0].model_dump(), "success_by_seed": [0.75] * 5}]),
    ],
)
def test_studies_that_are_not_comparable_are_refused(new: StudyResults) -> None:
    with pytest.raises(InputError, match="without --keep"):
        kept(study(), new, PATH)


def test_a_study_of_other_sizes_has_a_folder_and_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned: list[SeedJob] = []

    def record(jobs: Sequence[SeedJob], tasks: str) -> StudyResults:
        planned.extend(jobs)
        return study()

    monkeypatch.setattr(micro, "aggregate", record)
    sizes = ["--turns", "9", "--train-tasks", "7", "--eval-tasks", "8"]
    words = ["micro", "--tasks", "micro-long", *sizes, "--seeds", "1", "--finished"]
    for missing in ([], [str(tmp_path)], ["--out", str(tmp_path / "out.json")]):
        monkeypatch.setattr(sys, "argv", [*words, *missing])
        with pytest.raises(SystemExit):
            main()
        assert "of their own" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", [*words, str(tmp_path), "--out", str(tmp_path / "out.json")])
    main()
    [job] = planned
    assert (job.sizes.tasks, job.sizes.turns, job.sizes.train_tasks, job.sizes.eval_tasks) == ("micro-long", 9, 7, 8)
