"""`benchmarks.protocols`: what is counted as another order."""

from __future__ import annotations

from benchmarks.protocols import chosen_turns, compare_rankings
from sweet.learn.rows import Candidate
from sweet.ranking.turns import published_order
from tests.stages.learn_runs import make_dialogues


def ranked(*advantages: float) -> list[Candidate]:
    """Replies a, b and c, and a once more."""
    texts = ("a", "b", "c", "a")
    return [
        Candidate(text=text, advantage=value, logprob=value - 1, reference=-1.0, tokens=2)
        for text, value in zip(texts, advantages, strict=True)
    ]


def test_pairs_in_another_order_and_other_best_replies_are_counted() -> None:
    usual = {("t", 1): ranked(3.0, 2.0, 1.0, 3.0), ("t", 3): ranked(1.0, 2.0, 3.0, 1.0)}
    other = {("t", 1): ranked(3.0, 1.0, 2.0, 3.0), ("t", 3): ranked(1.0, 4.0, 3.0, 1.0)}
    found = compare_rankings({"paper": usual, "other": other})
    assert (found["paper"]["other_order"], found["paper"]["other_best"]) == (0.0, 0.0)
    # Five pairs of different texts at each turn; at both turns b and c have changed places.
    assert (found["other"]["other_order"], found["other"]["other_best"]) == (0.2, 0.5)
    assert found["other"]["advantage"] == 2.25
    assert found["other"]["tokens"] == 2


def test_the_turns_of_both_protocols_are_counted() -> None:
    dialogues = [trajectory for trajectory, _ in make_dialogues()]
    turns = sum(len(dialogue.agent_turns) for dialogue in dialogues)
    found = chosen_turns(dialogues, 0)
    assert (found["of"], found["paper"]) == (turns, -(-turns // 10))
    assert found["upstream"] == sum(len(dialogue.agent_turns) for dialogue in published_order(dialogues)[:2])
    assert 0 <= found["both"] <= found["paper"]
