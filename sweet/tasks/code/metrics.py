"""The metrics that the published evaluator adds to the scores of code tasks."""

from __future__ import annotations

from sweet.tasks.scores import Metric, Score


def _upstream_reward(score: Score) -> float | None:
    return score.upstream_reward


def _solved_upstream(score: Score) -> float | None:
    return None if score.upstream_reward is None else float(score.upstream_reward >= 1)


UPSTREAM_METRICS = {
    "upstream_success_rate": Metric(_solved_upstream),
    "upstream_tests_passed": Metric(_upstream_reward),
}
