"""The rates that stand for the scores of code tasks. Those of upstream's scorer are there where both were asked."""

from __future__ import annotations

from sweet.tasks.scores import Figure, Score, reward, solved


def _upstream_reward(score: Score) -> float | None:
    return score.upstream_reward


def _solved_upstream(score: Score) -> float | None:
    return None if score.upstream_reward is None else float(score.upstream_reward >= 1)


FIGURES = {"success_rate": Figure(solved), "tests_passed": Figure(reward)}
UPSTREAM_FIGURES = {
    "upstream_success_rate": Figure(_solved_upstream),
    "upstream_tests_passed": Figure(_upstream_reward),
}
