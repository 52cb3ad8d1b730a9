"""The metrics of `sweet compare --human`, as `--json` prints them. Every rate has its 95 % interval beside it."""

from __future__ import annotations

from sweet.json_value import JsonValue
from sweet.scoring.results.metrics import ComparedMetric
from sweet.stages.record import Rate, Record, UnknownRate

AnyRate = Rate | UnknownRate


class HumanSide(Record):
    """One of the two humans, and all of its replies that are measured."""

    human: str
    """its name"""
    run: str | None
    """the run of its dialogues; null where it was asked the questions of the other"""
    rollouts: str | None
    """id of its dialogues"""
    dialogues: int
    """dialogues with a reply"""
    tasks: int
    """different tasks among them"""
    replies: int
    """replies"""
    words: AnyRate
    """words of a reply"""
    facts: AnyRate
    """facts that a reply adds: numbers and words of the hidden information that were not said before"""
    unknown: AnyRate
    """share of the replies that say that it does not know"""
    negates: AnyRate
    """share of the replies with a negation"""
    leak: AnyRate
    """share of the replies that give the reference away"""
    fault: AnyRate
    """share of the replies with another fault"""


class SameQuestions(Record):
    """The replies of both to the same questions on the same tasks."""

    questions: int
    """questions that both replied to"""
    tasks: int
    """different tasks among them"""
    same_context: int
    """of the questions, those before which the whole dialogue was the same"""
    facts: AnyRate
    """of the facts that either adds, the share that both add (Jaccard)"""
    facts_of: int
    """questions to which either adds a fact"""
    numbers: AnyRate
    """the same of numbers alone"""
    numbers_of: int
    """questions to which either adds a number"""
    polarity: AnyRate
    """share of the yes/no questions that both answer with a yes, or both with a no"""
    polarity_of: int
    """yes/no questions that both answer with a yes or a no"""
    unknown: AnyRate
    """share of the questions that both say they do not know, or both do not say so"""
    negates: AnyRate
    """share of the questions at which both or neither use a negation"""
    words_difference: AnyRate
    """words of a reply, B - A, mean over the tasks"""


class DifferentReplies(Record):
    """A question to which the two state different facts, or the opposite."""

    task: str
    """id of the task"""
    a_id: str
    """dialogue of A"""
    b_id: str | None
    """dialogue of B; null where B was asked"""
    question: str
    """the question"""
    a: str
    """reply of A"""
    b: str
    """reply of B"""


class HumanOutcomes(Record):
    """How the dialogues with each went, paired by task."""

    tasks: int
    """tasks that both have"""
    turns: ComparedMetric
    """turns of the agent in a dialogue"""
    answered: ComparedMetric
    """share of the dialogues in which the agent answered"""
    figure: str | None = None
    """where both are scored: the metric"""
    rate: ComparedMetric | None = None
    """where both are scored: its mean, paired by task"""


class HumanComparison(Record):
    """The metrics of `sweet compare --human`; every difference is B - A."""

    a: HumanSide
    """the human of A"""
    b: HumanSide
    """the human of B"""
    same: SameQuestions
    """the replies to the same questions"""
    outcomes: HumanOutcomes | None = None
    """where both have dialogues on the same tasks: turns, answers and success by human, paired by task"""
    different: list[DifferentReplies]
    """questions to which they state different facts, or yes and no"""
    failed: int
    """questions that B could not be asked"""
    warnings: list[JsonValue]
    """what makes the comparison unfair"""
