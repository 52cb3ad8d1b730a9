"""The metrics of comparisons and of several dialogues a task, as `--json` prints them.

Every rate has its 95 % interval beside it. Keys that do not apply (pass@k where every task has one dialogue) are
absent.
"""

from __future__ import annotations

from typing import Annotated, Literal

from sweet.json_value import JsonValue
from sweet.stages.leaks import LeakMetrics
from sweet.stages.record import OMITTED_IF_NONE, AnyRate, Flat, Rate, Record


class SampledRate(Record):
    """The worth of k dialogues of a task, one k."""

    tasks: int
    """tasks with at least k dialogues"""
    rate: Rate
    """mean over these tasks"""


class SamplesMetrics(Record):
    """What several dialogues of a task are worth together, by k = 1, 2, 4, … (sweet.scoring.results.pass_at_k)."""

    pass_at_k: dict[str, SampledRate] | None = None
    """with several dialogues a task: chance that one of k solves it, by k, with interval (code)"""
    pass_hat_k: dict[str, SampledRate] | None = None
    """with several dialogues a task: chance that all k solve it (pass^k), by k, with interval (code)"""
    best_of_k: dict[str, SampledRate] | None = None
    """with several dialogues a task: expected reward of the best of k, by k, with interval"""


class ComparedRate(Record):
    """The same of two evaluations, one k."""

    tasks: int
    """tasks with at least k dialogues on both sides"""
    a: Rate
    """mean of the baseline"""
    b: Rate
    """mean of the other"""
    difference: Rate
    """b - a"""


class ComparedSamples(Record):
    """The same of two evaluations."""

    pass_at_k: dict[str, ComparedRate] | None = None
    """with several dialogues a task: chance that one of k solves it, for both and the difference"""
    pass_hat_k: dict[str, ComparedRate] | None = None
    """with several dialogues a task: chance that all k solve it (pass^k), for both and the difference"""
    best_of_k: dict[str, ComparedRate] | None = None
    """with several dialogues a task: expected reward of the best of k, for both and the difference"""


class ComparedSide(Record):
    """One of the two evaluations that are compared."""

    run: str
    """the run, as it was named"""
    scores: str
    """id of the scores"""
    rollouts: str | None
    """id of the dialogues; null where the run does not have them"""
    agent: JsonValue
    """the agent of the dialogues, an actor of the run by its id"""
    split: JsonValue
    """split of the tasks that were played; null where it is not recorded"""
    seed: JsonValue
    """seed of the dialogues"""
    temperature: JsonValue
    """sampling temperature of the agent, 0 if it is greedy; null where it is not recorded"""
    scorer: str | None
    """name of the scorer"""
    tasks: int
    """valid tasks"""
    dialogues: int
    """dialogues on them"""
    trained_on_tasks: int | None
    """compared tasks that the agent was trained on; null where this is not known"""


class ComparedMetric(Record):
    """One metric of both evaluations, paired by task."""

    tasks: int
    """tasks with a value on both sides"""
    a: Rate
    """mean of the baseline over tasks"""
    b: Rate
    """mean of the other over tasks"""
    difference: Rate
    """b - a"""
    p_value: float
    """two-sided"""
    test: Literal["mcnemar", "permutation"]
    """test of the p-value"""
    win_rate: Rate
    """share of the tasks on which b is higher, a tie counting half"""
    wins: int
    """tasks on which b is higher"""
    losses: int
    """tasks on which b is lower"""
    ties: int
    """tasks on which both are equal"""


class FlippedTask(Record):
    """A task that only one side solves."""

    task: str
    """id of the task"""
    a: float
    """share of its dialogues that solve it in A, or their mean reward"""
    b: float
    """the same in B"""
    a_ids: list[str]
    """its dialogues in A; the first shows the flip best"""
    b_ids: list[str]
    """its dialogues in B"""


class FlippedTasks(Record):
    """Tasks that flipped in one direction."""

    count: int
    """their number"""
    tasks: list[FlippedTask]
    """the first of them, the largest change first"""


class Flips(Record):
    """Tasks that A or B alone solves; where rewards are degrees, tasks whose reward changed."""

    by: Literal["solved", "reward"]
    """by what a task flips"""
    lost: FlippedTasks
    """tasks that A alone solves"""
    gained: FlippedTasks
    """tasks that B alone solves"""


class ComparedHuman(Record):
    """The dialogues with one human."""

    a_tasks: int
    """tasks that A played with this human"""
    b_tasks: int
    """tasks that B played with this human"""
    a: AnyRate
    """mean over the tasks of A; null without any"""
    b: AnyRate
    """mean over the tasks of B; null without any"""
    tasks: int
    """tasks that both played with this human"""
    difference: AnyRate
    """b - a over these; null without any"""


class ComparedHumans(Record):
    """One metric by human; an evaluation with one human counts as that human's."""

    figure: str
    """the metric"""
    humans: dict[str, ComparedHuman]
    """by human: tasks, a, b and the difference on the tasks that both sides played with this human, with intervals"""


class RepeatRate(Record):
    """The rate of one repeat."""

    scores: str
    """its scores, RUN:scores-2"""
    sample: int
    """its sample number"""
    seed: int | None
    """its seed"""
    rate: float
    """mean over the tasks"""


class RepeatsMetrics(Record):
    """How much the repeats of an evaluation vary (sweet.scoring.results.repeats)."""

    figure: str
    """the metric that is measured"""
    repeats: int
    """repeats that have most of the tasks"""
    left_out: int
    """repeats that have too few tasks"""
    tasks: int
    """tasks that all these repeats have"""
    mean: float | None = None
    """mean of the rates"""
    deviation: float | None = None
    """standard deviation of the rates; null with one repeat"""
    binomial_deviation: float | None = None
    """standard deviation if all dialogues had the same rate; null where values are not 0 or 1"""
    rates: list[RepeatRate]
    """each repeat"""


class RepeatsOfBoth(Record):
    """The repeats of both sides."""

    a: RepeatsMetrics
    """of A"""
    b: RepeatsMetrics
    """of B"""


class Caveat(Record):
    """One thing that is not the same, or is wrong, on the two sides of a comparison."""

    about: str
    """its name, for programs"""
    text: str
    """one sentence"""
    a: JsonValue
    """what it is in A"""
    b: JsonValue
    """what it is in B"""


class ComparedLeaks(Record):
    """How often the human leaked the solution on both sides, on the tasks that both have."""

    a: LeakMetrics
    """of A: leak_rate, leaked_rate and withheld_rate with intervals, withheld_replies, tries_per_dialogue"""
    b: LeakMetrics
    """of B"""
    difference: Rate
    """leak_rate of B - that of A, paired by task, with interval"""
    p_value: float
    """two-sided"""
    test: Literal["mcnemar", "permutation"]
    """test of the p-value"""


class ComparedStyle(Record):
    """How the humans of both sides speak, by dialogues on the tasks that both have (sweet.scoring.results.style)."""

    figures: dict[str, ComparedMetric]
    """words of a reply, replies of a dialogue, and shares of replies: sentences (several), numbers, questions, polite,
    corrections, declines (does not know or mind), lower_case (begins so), unfinished (no mark at the end), typos (a
    word one slip away from a known one), unasked (a number of a fact that was not asked for)"""
    told_apart: AnyRate
    """how often a classifier tells from a dialogue which human it was, chance being 0.5; null with fewer than 10
    tasks"""


class ComparisonMetrics(Record):
    """The metrics of `sweet compare`; every difference is B - A."""

    a: ComparedSide
    """the baseline: which scores of which dialogues, with the agent"""
    b: ComparedSide
    """the evaluation that is compared with it, in the same way"""
    tasks: int
    """valid tasks that both have; all other metrics are of these"""
    win_rate: Rate
    """share of them on which B's reward is higher, a tie counting half, with interval"""
    figures: dict[str, ComparedMetric]
    """by metric: a, b, difference and win_rate with intervals, p_value, test, wins, losses, ties"""
    flips: Flips
    """tasks that only A solves (lost) and that only B solves (gained)"""
    samples: Annotated[ComparedSamples, Flat()]
    """The worth of several dialogues of a task."""
    leaks: ComparedLeaks | None = OMITTED_IF_NONE
    """where a model plays the human: how often it leaked the solution in A and in B, difference, p_value, test"""
    repeats: RepeatsOfBoth
    """how much repeats of A and of B vary"""
    by_human: ComparedHumans | None = OMITTED_IF_NONE
    """with several humans or a persona on a side: the first metric by human"""
    style: ComparedStyle | None = OMITTED_IF_NONE
    """where the humans of A and B are others: how they speak"""
    warnings: list[Caveat]
    """what is not the same on both sides"""
