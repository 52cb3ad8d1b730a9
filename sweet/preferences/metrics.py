"""The metrics of `sweet label` and `sweet pair`."""

from __future__ import annotations

from sweet.stages.record import Record


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
    """scored dialogues that are not usable: ended by a fault, or without a turn of the agent"""


class PairMetrics(Record):
    pairs: int
    """pairs made"""
    turns: int
    """turns with candidates"""
    turns_with_pairs: int
    """turns with at least one pair"""
    mean_gap: float
    """mean difference of the chosen and the rejected advantage"""
