"""The rules with an advantage for each turn, by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sweet.credit.base import Batch, Credit, NothingToLearn, TurnLogprobs, discounted
from sweet.credit.gigpo import GiGPO
from sweet.credit.groups import EPSILON, GRPO
from sweet.credit.igpo import IGPO
from sweet.credit.infopo import NOTHING, InfoPO, silent
from sweet.credit.itpo import ITPO
from sweet.credit.mt_grpo import MTGRPO
from sweet.credit.tree import MultiturnReward, TreeGRPO, TreeRule
from sweet.errors import SweetError, UsageError
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory
from tests.credit.test_istar import Learned
from tests.credit.unasked import Unasked
from tests.learn.builders import build_trajectory

RULE = task_kind("code").rewards


def make_batch(**dialogues: tuple[int, float]) -> Batch:
    """Dialogues of one task, each with so many turns of the agent and such a reward."""
    found = {name: build_trajectory(name, turns=turns) for name, (turns, _) in dialogues.items()}
    return Batch(found, RULE, rewards={name: reward for name, (_, reward) in dialogues.items()}, source="scores-1")


def by_turn(credits: Sequence[Credit]) -> dict[tuple[Any, int], Any]:
    return {(credit.of, turn): value for credit in credits for turn, value in credit.policy.items()}


class Known(Unasked):
    """Models that answer with given log-probabilities: of the solution, and of the agent's turns."""

    def __init__(
        self,
        solutions: Mapping[str, Mapping[int, Sequence[float]]] | None = None,
        turns: Mapping[str, Mapping[int, Sequence[float]]] | None = None,
    ) -> None:
        self.known, self.of_turns = solutions or {}, turns or {}

    def solutions(self, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, TurnLogprobs]]:
        return {
            one.id: {turn: TurnLogprobs(tuple(map(math.log, p))) for turn, p in self.known[one.id].items()}
            for one in dialogues
        }

    def logprobs(
        self, model: Any, dialogues: Sequence[Trajectory], *, informed: bool = False, top: int = 0
    ) -> dict[str, dict[int, TurnLogprobs]]:
        assert (model, informed, top) == ("policy", False, 0)
        assert all(turn.prompt_token_ids is None for one in dialogues for turn in one.dialogue_history)
        return {
            one.id: {turn: TurnLogprobs(tuple(values)) for turn, values in self.of_turns[one.id].items()}
            for one in dialogues
        }


def test_returns_are_discounted_by_turn() -> None:
    assert discounted([1.0, 0.0, 4.0], 0.5) == [2.0, 2.0, 4.0]


def test_gigpo_compares_turns_in_equal_or_similar_states() -> None:
    batch = make_batch(a=(2, 1.0), b=(2, 0.0), c=(1, 1.0))
    # Dialogues: 1, 0, 1 around 2/3. First turns: 0.5, 0, 1 around 0.5. Second turns: 1, 0 around 0.5; before them all
    # but one of 20 words are the same in a and b, so that they are 38/40 alike.
    found = by_turn(GiGPO(gamma=0.5, std=False).credit(batch, Known()))
    dialogue = {"a": 1 / 3, "b": -2 / 3, "c": 1 / 3}
    steps = {("a", 1): 0.0, ("a", 3): 0.5, ("b", 1): -0.5, ("b", 3): -0.5, ("c", 1): 0.5}
    assert found == pytest.approx({key: dialogue[key[0]] + step for key, step in steps.items()})
    for similarity in (0.96, 1.0):  # the second turns are alone
        found = by_turn(GiGPO(gamma=0.5, std=False, weight=2.0, similarity=similarity).credit(batch, Known()))
        steps = {("a", 1): 0.0, ("a", 3): 0.0, ("b", 1): -1.0, ("b", 3): 0.0, ("c", 1): 1.0}
        assert found == pytest.approx({key: dialogue[key[0]] + step for key, step in steps.items()})
    found = by_turn(GiGPO(gamma=0.5).credit(make_batch(a=(2, 1.0), b=(2, 0.0)), Known()))
    high, half = 0.5 / (0.5**0.5 + EPSILON), 0.25 / (0.125**0.5 + EPSILON)  # the first turns: 0.5 and 0
    assert found == pytest.approx(
        {("a", 1): high + half, ("a", 3): 2 * high, ("b", 1): -high - half, ("b", 3): -2 * high}
    )


def test_gigpo_learns_which_of_two_equal_outcomes_was_reached_sooner() -> None:
    found = by_turn(GiGPO(gamma=0.5, std=False).credit(make_batch(a=(2, 1.0), c=(1, 1.0)), Known()))
    assert found == pytest.approx({("a", 1): -0.25, ("a", 3): 0.0, ("c", 1): 0.25})


SOLUTIONS = {"a": {1: [0.2, 0.2], 3: [0.5, 0.5], 5: [0.4, 0.4]}, "b": {1: [0.1, 0.4], 3: [0.3, 0.3]}}
"""Probabilities of the two tokens of the solution; their geometric means are 0.2, 0.5, 0.4, and 0.2, 0.3."""


def test_igpo_rewards_what_a_turn_adds_to_the_probability_of_the_solution() -> None:
    batch = make_batch(a=(3, 1.0), b=(2, 0.0))
    # Rewards 0.3, -0.1 and 1; 0.1 and 0. Around their mean 0.26: 0.04, -0.36, 0.74; -0.16, -0.26.
    found = by_turn(IGPO(std=False, gamma=0.5).credit(batch, Known(SOLUTIONS)))
    expected = {("a", 5): 0.74, ("a", 3): -0.36 + 0.37, ("a", 1): 0.04 + 0.005, ("b", 3): -0.26, ("b", 1): -0.29}
    assert found == pytest.approx(expected)
    # Gains 0.3, -0.1, 0.1 around 0.1, outcomes 1 and 0 around 0.5.
    found = by_turn(IGPO(std=False, together=False).credit(batch, Known(SOLUTIONS)))
    assert found == pytest.approx({("a", 5): 0.5, ("a", 3): 0.3, ("a", 1): 0.5, ("b", 3): -0.5, ("b", 1): -0.5})
    divided = by_turn(IGPO(together=False).credit(batch, Known(SOLUTIONS)))
    high, spread = 0.5 / (0.5**0.5 + EPSILON), 0.2 / (0.2 + EPSILON)  # of 0.2, -0.2 and 0: sqrt(0.08 / 2)
    assert divided["a", 3] == pytest.approx(high - spread)


def test_igpo_by_the_clipped_difference_of_log_probabilities() -> None:
    rule = IGPO(gain="log", together=False, std=False)
    found = by_turn(rule.credit(make_batch(a=(3, 1.0), b=(2, 0.0)), Known(SOLUTIONS)))
    gains = {"a1": 2 * math.log(2.5), "a3": 0.0, "b1": math.log(0.09 / 0.04)}
    mean = sum(gains.values()) / 3
    assert found["a", 3] == pytest.approx(0.5 - mean), "a fall is no loss"
    assert found["a", 1] == pytest.approx(0.5 - mean + gains["a1"] - mean)
    assert found["b", 1] == pytest.approx(-0.5 + gains["b1"] - mean)


def test_igpo_needs_answers_that_solve_a_task() -> None:
    batch = replace(make_batch(a=(1, 1.0), b=(1, 0.0)), rule=task_kind("html").rewards)
    with pytest.raises(UsageError, match="are degrees"):
        IGPO().credit(batch, Known())


BLIND = "{} without the reply to {}"
TURNS = {
    "a": {1: [-1.0], 3: [-1.0, -2.0], 5: [-2.0]},
    "b": {1: [-1.0], 3: [-1.0]},
    BLIND.format("a", 1): {3: [-2.0, -4.0]},  # the first reply makes what follows likelier by 1.5 a token
    BLIND.format("a", 3): {5: [-1.5]},
    BLIND.format("b", 1): {3: [-2.0]},
}


def test_infopo_rewards_what_a_reply_changes_in_the_next_turn() -> None:
    # Changes 1.5 and -0.5, and 1.0, around 2/3. The rewards are equal, so that the gate is at 1/2.
    found = by_turn(InfoPO(weight=2.0, std=False).credit(make_batch(a=(3, 1.0), b=(2, 1.0)), Known(turns=TURNS)))
    steps = {("a", 1): 5 / 6, ("a", 3): -7 / 6, ("a", 5): 0.0, ("b", 1): 1 / 3, ("b", 3): 0.0}
    assert found == pytest.approx(steps)
    # Rewards 1 and 0.9 have the standard deviation 0.05 sqrt(2); at the temperature 0.05 the gate is at
    # sigmoid(-sqrt(2)).
    found = by_turn(InfoPO(weight=2.0, std=False).credit(make_batch(a=(3, 1.0), b=(2, 0.9)), Known(turns=TURNS)))
    gate = 2 / (1 + math.exp(2**0.5))
    dialogue = {"a": 0.05, "b": -0.05}
    assert found == pytest.approx({key: dialogue[key[0]] + gate * step for key, step in steps.items()})


def test_infopo_masks_the_reply_alone() -> None:
    dialogue = build_trajectory("a", turns=3)
    masked = silent(dialogue, 3, 5)
    said, expected = ([turn.content for turn in one.dialogue_history] for one in (masked, dialogue))
    assert said == [*expected[:4], NOTHING, expected[5]]
    assert silent(dialogue, 1, 3).agent_turns == [1, 3]


def rewarded(**dialogues: list[float]) -> Batch:
    """Dialogues of one task whose turns have these rewards; all of them solve the task."""
    batch = make_batch(**{name: (len(own), 1.0) for name, own in dialogues.items()})
    found = {}
    for name, own in dialogues.items():
        turns = list(batch.dialogues[name].dialogue_history)
        for turn, value in zip(batch.dialogues[name].agent_turns, own, strict=True):
            turns[turn] = turns[turn].model_copy(update={"rewards": {"step": value, "other": 100.0}})
        found[name] = batch.dialogues[name].model_copy(update={"dialogue_history": tuple(turns)})
    return replace(batch, dialogues=found)


def test_mt_grpo_normalises_rewards_by_the_place_of_their_turn() -> None:
    batch = rewarded(a=[0.5, 0.2, 1.0], b=[0.1, 0.4])
    # First turns 0.2 and -0.2 around 0.3, second ones -0.1 and 0.1; the third has nothing to be compared with.
    found = by_turn(MTGRPO(turns="step", std=False, weight=2.0).credit(batch, Known()))
    assert found == pytest.approx({("a", 1): 0.2, ("a", 3): -0.2, ("a", 5): 0.0, ("b", 1): -0.2, ("b", 3): 0.2})
    found = by_turn(MTGRPO(turns="step").credit(batch, Known()))
    one, two = 0.2 / (0.08**0.5 + EPSILON), 0.1 / (0.02**0.5 + EPSILON)
    assert found["a", 1] == pytest.approx(one - two)
    # Returns 1.7, 1.2, 1 and 0.5, 0.4; each against the whole return of the other dialogue.
    found = by_turn(MTGRPO(turns="step", baseline="return").credit(batch, Known()))
    assert found == pytest.approx({("a", 1): 1.2, ("a", 3): 0.7, ("a", 5): 0.5, ("b", 1): -1.2, ("b", 3): -1.3})
    outcomes = replace(batch, rewards={"a": 1.0, "b": 0.0})
    found = by_turn(MTGRPO(turns="step", std=False).credit(outcomes, Known()))
    assert (found["a", 5], found["b", 1]) == pytest.approx((0.5, -0.6))
    with pytest.raises(UsageError, match="No turn has a reward"):
        MTGRPO().credit(make_batch(a=(1, 1.0), b=(2, 0.0)), Known())
    with pytest.raises(NothingToLearn):
        MTGRPO().credit(make_batch(), Known())


@pytest.mark.parametrize(("baseline", "expected"), [("index", 0.0), ("return", -0.1 * 0.3 * 0.7)])
def test_the_published_normalisation_does_not_charge_the_agent_for_one_more_turn(
    baseline: Any, expected: float
) -> None:
    """Every turn costs 0.1, and the agent goes on after the first one with probability 0.3. The gradient of the
    expected return by the logit of that decision is -0.1 * 0.3 * 0.7; here it is the expectation of the estimate over
    all groups of two dialogues."""
    goes, cost = 0.3, -0.1
    rule, estimate = MTGRPO(baseline=baseline, turns="step", std=False), 0.0
    for decisions in itertools.product([True, False], repeat=2):
        batch = rewarded(**{f"d{n}": [cost] * (1 + on) for n, on in enumerate(decisions)})
        try:
            found = by_turn(rule.credit(batch, Known()))
        except SweetError:  # all advantages are 0
            continue
        probability = math.prod(goes if on else 1 - goes for on in decisions)
        slopes = [1 - goes if on else -goes for on in decisions]
        estimate += probability * sum(slope * found[f"d{n}", 1] for n, slope in enumerate(slopes)) / 2
    assert estimate == pytest.approx(expected)


def test_itpo_divides_the_outcome_by_the_softmax_of_the_log_ratios() -> None:
    # Mean ratios 1.5 and 0.5 in a, of 2 and 4 tokens; 0 in b, of 3. A turn has 3 tokens on average, so with beta 0.5
    # and the temperature 1.5 the logits are 1.5 and 0.5: shares e / (e + 1) and 1 / (e + 1).
    gains = {"a": {1: [1.0, 2.0], 3: [0.5, 0.5, 0.5, 0.5]}, "b": {1: [0.0, 1.0, -1.0]}}
    batch = make_batch(a=(2, 0.8), b=(1, 0.2))
    models = Learned(gains)
    found = by_turn(ITPO(reward_beta=0.5, temperature=1.5, std=False).credit(batch, models))
    late = 0.8 / (math.e + 1)
    mean = (0.8 + late + 0.2) / 3
    assert found == pytest.approx({("a", 1): 0.8 - mean, ("a", 3): late - mean, ("b", 1): 0.2 - mean})
    assert len(models.trained) == 1


def grown(batch: Batch, **branches: tuple[str, int]) -> Batch:
    """The batch with branches: of which dialogue, and the index of their first turn."""
    dialogues = {name: one.model_copy(update={"branched": branches.get(name)}) for name, one in batch.dialogues.items()}
    return replace(batch, dialogues=dialogues)


FOREST = grown(make_batch(a=(3, 1.0), b=(3, 0.0), c=(2, 0.0), d=(2, 0.0)), b=("a", 3), d=("c", 3))
"""Two trees; in each a dialogue branches before the second turn of the agent."""


def test_tree_grpo_compares_dialogues_within_their_tree_and_all_of_the_group() -> None:
    # All: 1, 0, 0, 0 around 1/4. The tree of a: 1, 0 around 1/2. The tree of c: equal.
    found = by_turn(TreeGRPO(std=False).credit(FOREST, Known()))
    assert found == {
        **{("a", 1): 1.25 - 0.75, ("a", 3): 1.25, ("a", 5): 1.25, ("b", 3): -0.75, ("b", 5): -0.75},
        **{("c", 1): -0.5, ("c", 3): -0.25, ("d", 3): -0.25},
    }, "the first turns are shared, and have the sum"
    alone = make_batch(a=(1, 1.0), b=(1, 0.0))
    assert by_turn(TreeGRPO().credit(alone, Known())) == by_turn(GRPO().credit(alone, Known()))


def test_mr_compares_what_follows_a_turn_with_what_follows_the_state_before_it() -> None:
    found = by_turn(MultiturnReward(std=False).credit(FOREST, Known()))
    assert found == {
        **{("a", 1): 0.5 - 0.25, ("a", 3): 1.0 - 0.5, ("a", 5): 0.0, ("b", 3): 0.0 - 0.5, ("b", 5): 0.0},
        **{("c", 1): 0.0 - 0.25, ("c", 3): 0.0, ("d", 3): 0.0},
    }
    scale = math.sqrt(0.25) + EPSILON
    scaled = by_turn(MultiturnReward().credit(FOREST, Known()))
    assert scaled == {key: pytest.approx(value / scale) for key, value in found.items()}


@pytest.mark.parametrize("rule", [TreeGRPO(), MultiturnReward()])
def test_what_a_lost_dialogue_had_is_learned_from_its_branches(rule: TreeRule) -> None:
    lost = replace(FOREST, rewards={name: reward for name, reward in FOREST.rewards.items() if name != "c"})
    assert {key for key in by_turn(rule.credit(lost, Known())) if key[0] == "d"} == {("d", 1), ("d", 3)}
    with pytest.raises(NothingToLearn):
        rule.credit(replace(FOREST, rewards=dict.fromkeys("abcd", 0.5)), Known())
