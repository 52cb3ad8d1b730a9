"""The metrics of `sweet label` and `sweet pair`, and what their plans count."""

from __future__ import annotations

from sweet.stages.record import Record


class LabelWork(Record):
    """The work of labelling."""

    dialogues: int
    """scored dialogues"""
    left_out: int
    """those that are not usable"""
    tasks: int
    """tasks of the others"""
    pairs: int
    """preferences"""


class PairWork(Record):
    """The work of pairing."""

    turns: int
    """ranked turns"""
    candidates: int
    """their candidates"""
    pairs: int
    """pairs"""
    unpaired: int
    """turns without a pair whose best reply is kept"""


class LabelMetrics(Record):
    pairs: int
    """preferences made"""
    tasks: int
    """tasks of the usable dialogues"""
    tasks_with_pairs: int
    """tasks with at least one preference"""
    trajectories: int
    """usable dialogues"""
    left_out: int
    """scored dialogues that are not usable: ended by a fault, without a turn of the agent, or not among the
    rollouts any more"""


class PairMetrics(Record):
    pairs: int
    """pairs made"""
    turns: int
    """turns with candidates"""
    turns_with_pairs: int
    """turns with at least one pair"""
    unpaired: int
    """turns without a pair whose best reply is kept"""
    mean_gap: float
    """mean difference of the chosen and the rejected advantage"""
