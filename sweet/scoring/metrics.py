"""The metrics of `sweet eval`, and the work that its plan counts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sweet.json_value import JsonValue
from sweet.scoring.results.metrics import ComparisonMetrics, SamplesMetrics
from sweet.stages.leaks import LeakMetrics
from sweet.stages.record import OMITTED_IF_NONE, AnyRate, Flat, Rate, Record


class BestOfRates(Record):
    """Success of the best of N dialogues, one N, by what chooses."""

    tasks: int
    """tasks with at least N dialogues"""
    critic: Rate
    """the critic chooses"""
    random: Rate
    """chance chooses"""
    oracle: Rate
    """the rewards choose"""


class BestOfMetrics(Record):
    """Best of N finished dialogues by a critic (sweet.scoring.best_of)."""

    critic: str
    """id of the critic"""
    left_out: int
    """dialogues that are too long for the critic"""
    n: dict[str, BestOfRates]
    """by N = 1, 2, 4, …"""
    reference_context: str | None = None
    """what the critic's reference reads, hidden or dialogue; null where the critic has none"""
    turn_tokens: str | None = None
    """the tokens of a turn that the means of the critic run over: both, reply or separate; null where it has none"""


class HumanRates(Record):
    """The dialogues of one of several humans."""

    dialogues: int
    """dialogues with this human, without those on invalid tasks"""
    tasks: int
    """different tasks among them"""
    faults: int
    """dialogues that ended by a fault of this human"""
    rates: Annotated[dict[str, AnyRate], Flat()] = Field(default_factory=dict)
    """The rates of the kind of task in them."""


class EvalMetrics(Record):
    """The metrics of `sweet eval`."""

    trajectories: int
    """dialogues scored"""
    tasks: int
    """different tasks among them"""
    trained_on_tasks: int | None
    """those of these tasks that the agent, or a critic in its lineage, was trained on; null where this is not known, as
    for a model of the hub"""
    rates: Annotated[
        dict[str, AnyRate],
        Flat(
            {
                "success_rate": "share of the dialogues that pass all hidden tests, with interval (code)",
                "tests_passed": "mean share of the hidden tests passed, with interval (code)",
                "upstream_success_rate": "with --scorer both: the same by the published evaluator, with interval "
                "(code)",
                "upstream_tests_passed": "with --scorer both: the same by the published evaluator, with interval "
                "(code)",
                "cosine": "mean similarity of page and reference, with interval (html)",
                "block_match": "share of the texts' area that both pages have, with interval (html)",
                "text": "similarity of paired texts, with interval (html)",
                "position": "closeness of their positions, with interval (html)",
                "color": "similarity of their colours, with interval (html)",
                "turn_reward_NAME": "sum of a dialogue's rewards of turns of this name, mean with interval",
            }
        ),
    ] = Field(default_factory=dict)
    """The rates of the kind of task, by name; a kind may have rates of its own."""
    leaks: Annotated[LeakMetrics | None, Flat()] = None
    """Leaks of a model that plays the human."""
    outcomes: dict[str, int]
    """dialogues by how they scored"""
    faults: int
    """dialogues that ended by a fault; they count as unsolved"""
    invalid_tasks: int
    """tasks whose reference fails; they count in no rate"""
    humans: dict[str, HumanRates] | None = OMITTED_IF_NONE
    """with several humans or a persona: dialogues, tasks, faults and the same rates, by human"""
    cost_per_solved_task: float | None = OMITTED_IF_NONE
    """cost of the dialogues over the tasks that one of them solved, if they were played with --prices; absent without,
    and where none was solved"""
    samples: Annotated[SamplesMetrics, Flat()]
    """The worth of several dialogues of a task."""
    scored_by: Annotated[
        dict[str, JsonValue],
        Flat(
            {
                "scorer": "name of the scorer",
                "similarity": "what compared screenshots (html)",
                "window": "window in which pages were rendered (html)",
                "pictures": "what was shown for images (html)",
                "tolerance": "relative difference of floats taken for equal (code)",
                "absolute_tolerance": "absolute difference of floats taken for equal (code)",
                "sandbox": "jail that ran the code (code)",
                "nodes": "with --ray: what each node did",
            }
        ),
    ] = Field(default_factory=dict)
    """What scored, and where, by the kind's scorer."""
    best_of: BestOfMetrics | None = None
    """with --best-of-by: success of the best of 1, 2, 4, … finished dialogues, by critic, chance and oracle"""
    compare: ComparisonMetrics | None = None
    """with --compare: the metrics of sweet compare"""
    win_rate: Rate | None = None
    """with --compare: share of the tasks won, a tie counting half, with interval"""
    seconds: float = 0.0
    """duration of scoring"""

    @property
    def success_rate(self) -> Rate | None:
        """The share of the dialogues that solve their task; None where the scorer has none, or scored no dialogue."""
        rate = self.rates.get("success_rate")
        return rate if isinstance(rate, Rate) else None


class EvalWork(Record):
    """The work of an evaluation."""

    dialogues: int
    """dialogues to score"""
    tasks: int
    """different tasks among them"""
    answers: int
    """different answers to a task"""
    tests: int | None = None
    """tests of the answers (code)"""
    reference_tests: int | None = None
    """tests of the references (code)"""
