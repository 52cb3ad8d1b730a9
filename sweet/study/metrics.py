"""The metrics of `sweet demo`, and of `sweet demo --study`."""

from __future__ import annotations

from typing import Annotated

from sweet.stages.record import Flat, Rate, Record, UnknownRate
from sweet.study.results import StudyResults

AnyRate = Rate | UnknownRate


class RoundMetrics(Record):
    """The evaluation of the agent after one round."""

    round: int
    """number of the round, from 1"""
    success: AnyRate
    """share of tasks solved"""
    tests: AnyRate
    """share of the hidden tests passed"""


class DemoMetrics(Record):
    tasks: int
    """unseen tasks, played before and after training"""
    success_before: AnyRate
    """share of tasks solved by the packaged agent, with interval"""
    tests_before: AnyRate
    """share of the hidden tests passed by the packaged agent, with interval"""
    success_after: AnyRate
    """share of tasks solved by the trained agent of the last round, with interval"""
    tests_after: AnyRate
    """share of the hidden tests passed by the trained agent, with interval"""
    rounds: list[RoundMetrics]
    """success and tests after each round, with intervals"""
    sandbox: str
    """jail that ran the code"""
    seconds: float
    """total time"""
    steps: dict[str, float]
    """seconds of each step"""


class StudyMetrics(Record):
    study: Annotated[
        StudyResults,
        Flat(
            {
                "seeds": "with --study: the seeds; the metrics below are means over them with a t-interval",
                "test_tasks": "with --study: unseen tasks of each evaluation",
                "methods": "with --study: success, tests_passed and greedy_success of each method, the tokens that "
                "the agent generated for it, the seconds of its steps, its settings, and the difference of sweet and "
                "the method: paired by task, and over seeds; its learning curve on validation tasks, also read at the "
                "seconds that sweet needs",
                "best_of": "with --study: success of the best of n finished dialogues, by critic, no_info, random and "
                "oracle",
                "best_of_turns": "with --study: success with the best of n replies at each turn, by critic, no_info, "
                "random, oracle and untrained",
                "credit": "with --study: mean advantage by kind of turn, and how often replies are ordered correctly",
                "settings": "with --study: the sizes of the study",
                "versions": "with --study: versions of the software",
            }
        ),
    ]
    """The results of the study."""
    results: str
    """with --study: the file with all these metrics"""
    failed: list[str]
    """with --study: parts that failed, with the reason"""
    seconds: float
    """total time"""
