"""Synthetic results of a study in the layout of `study.json`."""

from __future__ import annotations

from typing import Any

from sweet.study.results import StudyResults
from sweet.study.settings import METHODS

SEEDS = [0, 1, 2, 3, 4]
TASKS = 500


def around(mean: float, reach: float) -> dict[str, Any]:
    """Return an estimate with its interval."""
    return {"mean": mean, "ci": [round(mean - reach, 4), round(mean + reach, 4)]}


def method(number: int, name: str) -> dict[str, Any]:
    success = round(0.1 + 0.05 * number, 4)
    gap = round(0.25 - success, 4)
    return {
        "method": name,
        "success": around(success, 0.04),
        "success_by_seed": [round(success + 0.01 * (seed - 2), 4) for seed in SEEDS],
        "tests_passed": around(round(success + 0.2, 4), 0.03),
        "greedy_success": around(round(success + 0.1, 4), 0.05),
        "seconds": 60.0 + number,
        "generated_tokens": 0.0 if name == "zero-shot" else 125_000.0 + number,
        "seconds_by_seed": [60.0 + number] * len(SEEDS),
        "settings": {} if name == "zero-shot" else {"lr": 1e-4, "epochs": 2},
        "against_sweet": None
        if name == "sweet"
        else {"difference": around(gap, 0.03), "p_value": 0.001, "seeds_ci": around(gap, 0.06)["ci"]},
    }


def curve(first: float, step: float, many: int) -> list[dict[str, Any]]:
    values = [round(first + step * number, 4) for number in range(many)]
    return [{"n": 2**k, "success": around(value, 0.03)} for k, value in enumerate(values)]


def learned(number: int, name: str) -> dict[str, Any]:
    """A method with a learning curve."""
    at = [0.0, 15_000.0 + number, 60_000.0 + number, 125_000.0 + number]
    points = [
        {"tokens": tokens, "seconds": tokens / 1000, "success": around(0.1 + tokens / 1e6, 0.03)} for tokens in at
    ]
    read = {"seconds": 60.0, "tokens": at[2], "success": around(0.16, 0.02), "sweet_minus": around(0.07, 0.04)}
    return {**method(number, name), "curve": points, "at_equal_seconds": read}


def study_dict() -> dict[str, Any]:
    kinds = {"useful": 0.12, "useless": -0.05, "repeated": -0.2, "early": -0.15, "full": 0.2, "partial": 0.02}
    return {
        "schema_version": 1,
        "family": "micro",
        "seeds": SEEDS,
        "test_tasks": TASKS,
        "methods": [method(number, name) for number, name in enumerate(METHODS)],
        "best_of": {
            "critic": curve(0.2, 0.1, 6),
            "no_info": curve(0.2, 0.05, 6),
            "random": curve(0.2, 0.0, 6),
            "oracle": curve(0.2, 0.13, 6),
        },
        "best_of_turns": {
            "critic": curve(0.2, 0.08, 4),
            "no_info": curve(0.2, 0.03, 4),
            "random": curve(0.2, 0.0, 4),
            "oracle": curve(0.2, 0.12, 4),
            "untrained": curve(0.2, 0.06, 4),
        },
        "credit": {
            "critic": {kind: around(mean, 0.03) for kind, mean in kinds.items()},
            "no_info": {kind: around(mean / 4, 0.02) for kind, mean in kinds.items()},
            "agreement": {
                "critic": around(0.8, 0.03),
                "no_info": around(0.6, 0.04),
            },
            "agreement_by_kind": {
                "critic": {"useful>useless": {"mean": 0.9, "couples": 120}},
                "no_info": {"useful>useless": {"mean": 0.7, "couples": 120}},
            },
        },
        "settings": {"train_tasks": 600, "samples": 6, "equal": "dialogues"},
        "versions": {"python": "3.12", "torch": "2.9", "transformers": "5.0", "sweet": "0.0", "cores": 2},
    }


def study(**changes: Any) -> StudyResults:
    return StudyResults.model_validate({**study_dict(), **changes})
