"""Pairs come from both halves, never hold one text twice, and depend on the seed alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import SweetError
from sweet.learn.rows import Candidate, CandidateRow, Pair
from sweet.preferences.config import PairConfig
from sweet.preferences.pair import plan_pair, run_pair, turn_pairs, turn_rows
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import Message
from tests.stages.learn_runs import put


def candidate(text: str, advantage: float) -> Candidate:
    return Candidate(text=text, advantage=advantage, logprob=advantage, reference=0.0, tokens=3, token_ids=(1, 2))


def row(values: dict[str, float] | list[tuple[str, float]], trajectory: str = "t", turn: int = 1) -> CandidateRow:
    items = values.items() if isinstance(values, dict) else values
    return CandidateRow(
        trajectory_id=trajectory,
        task_id="task",
        turn=turn,
        observation=(Message(role="user", content="q"),),
        candidates=tuple(candidate(text, advantage) for text, advantage in items),
        taken=candidate("taken", 0.0),
    )


RANKED = {"a": 0.9, "b": 0.5, "c": 0.1, "d": -0.2, "e": -0.4, "f": -0.6}


def texts(pairs: Iterable[Pair]) -> list[tuple[str, ...]]:
    return [tuple(side.text for side in pair.sides.values()) for pair in pairs]


def test_random_halves_draws_from_both_halves() -> None:
    pairs = list(turn_pairs(row(RANKED), PairConfig(pairs=9)))
    assert set(texts(pairs)) == {(g, b) for g in "abc" for b in "def"}
    few = list(turn_pairs(row(RANKED), PairConfig(pairs=4)))
    assert texts(few) == texts(pairs[:4])
    other = list(turn_pairs(row(RANKED), PairConfig(pairs=9, seed=1)))
    assert texts(other) != texts(pairs)


def test_best_worst_takes_the_extremes_first() -> None:
    pairs = list(turn_pairs(row(RANKED), PairConfig(strategy="best-worst", pairs=2)))
    assert texts(pairs) == [("a", "f"), ("b", "e")]
    assert pairs[0].chosen.advantage == 0.9
    assert pairs[0].chosen.token_ids == (1, 2)


def test_a_gap_leaves_close_ones_out() -> None:
    pairs = list(turn_pairs(row(RANKED), PairConfig(pairs=9, min_gap=1.2)))
    assert set(texts(pairs)) == {("a", "e"), ("a", "f")} - {("a", "x")}


def test_a_share_of_the_largest_gap_of_the_turn_leaves_close_ones_out() -> None:
    """Best and worst differ by 1.5, the next two by 0.9, the two in the middle by 0.3."""

    def paired(values: dict[str, float], share: float) -> list[str]:
        config = PairConfig(strategy="best-worst", pairs=9, min_gap_share=share)
        return ["".join(both) for both in texts(turn_pairs(row(values), config))]

    assert paired(RANKED, 0.0) == ["af", "be", "cd"]
    assert paired(RANKED, 0.59) == ["af", "be"]
    assert paired(RANKED, 0.61) == ["af"]
    assert paired(RANKED, 1.0) == ["af"]
    # The share is of the turn's own scale.
    assert paired({text: 100 * value for text, value in RANKED.items()}, 0.59) == ["af", "be"]
    # An absolute gap holds beside it.
    both = PairConfig(strategy="best-worst", pairs=9, min_gap_share=0.1, min_gap=1.0)
    assert texts(turn_pairs(row(RANKED), both)) == [("a", "f")]


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.floats(-1, 1)), min_size=2, max_size=16),
    st.integers(1, 6),
    st.sampled_from(["random-halves", "best-worst"]),
)
def test_a_pair_has_two_texts_and_the_better_one_chosen(
    items: list[tuple[str, float]], count: int, strategy: Any
) -> None:
    config = PairConfig(pairs=count, strategy=strategy)
    pairs = list(turn_pairs(row(items), config))
    assert len(pairs) <= count
    assert all(chosen != rejected for chosen, rejected in texts(pairs))
    assert all(p.rejected is not None and p.chosen.advantage > p.rejected.advantage for p in pairs)
    assert len(set(texts(pairs))) == len(pairs)
    assert pairs == list(turn_pairs(row(list(reversed(items))), config))


def make_run(folder: Path, rows: list[CandidateRow]) -> Run:
    run = Run.create(folder, task="code")
    put(run, "rank", "candidates", rows)
    return run


def test_the_order_of_the_file_decides_nothing(tmp_path: Path) -> None:
    rows = [row(RANKED, f"t{number}", turn) for number in range(4) for turn in (1, 3)]
    found = []
    for name, order in (("a", rows), ("b", rows[::-1])):
        run = make_run(tmp_path / name, order)
        result = run_pair(run, PairConfig(pairs=2, fraction=0.5, seed=3), Silent())
        assert (result.metrics.pairs, result.metrics.turns, result.artifacts[0].rows) == (8, 4, 8)
        found.append(list(read_jsonl(run.file(result.artifacts[0]), Pair)))
    assert found[0] == found[1]
    assert len({pair.id for pair in found[0]}) == 8


LEVEL = {"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}


def test_of_a_turn_without_a_pair_the_best_reply_is_kept_alone() -> None:
    def kept(values: dict[str, float], **options: Any) -> list[tuple[str, ...]]:
        return texts(turn_rows(row(values), PairConfig(unpaired="best", **options)))

    assert turn_rows(row(LEVEL), PairConfig()) == []
    assert kept(RANKED, min_gap=2.0) == [("a",)]
    [(level,)] = kept(LEVEL)
    assert level in LEVEL
    assert {kept(LEVEL, seed=seed)[0][0] for seed in range(20)} == set(LEVEL), "one of the level replies is drawn"
    assert turn_rows(row(RANKED), PairConfig(unpaired="best")) == turn_rows(row(RANKED), PairConfig())


def test_what_is_kept_alone_is_counted_apart_and_the_file_s_order_decides_nothing(tmp_path: Path) -> None:
    rows = [row(RANKED, "t0"), row(LEVEL, "t1"), row({**LEVEL, "e": 0.1}, "t2"), row({"only": 0.0}, "t3")]
    config = PairConfig(strategy="best-worst", pairs=2, min_gap=0.2, unpaired="best")
    found = []
    for name, order in (("a", rows), ("b", rows[::-1])):
        run = make_run(tmp_path / name, order)
        work = plan_pair(run, config, Silent()).work
        assert (work.turns, work.pairs, work.unpaired) == (4, 2, 3)
        result = run_pair(run, config, Silent())
        metrics = result.metrics
        assert (metrics.pairs, metrics.turns_with_pairs, metrics.unpaired, result.artifacts[0].rows) == (2, 1, 3, 5)
        assert metrics.mean_gap == pytest.approx((1.5 + 0.9) / 2)
        found.append(list(read_jsonl(run.file(result.artifacts[0]), Pair)))
    assert found[0] == found[1]
    alone = found[0][2:]
    assert [(one.trajectory_id, one.rejected) for one in alone] == [(name, None) for name in ("t1", "t2", "t3")]
    assert [one.chosen.text for one in alone[1:]] == ["e", "only"]
    assert len({one.id for one in found[0]}) == 5


def test_likelihood_alone_makes_no_preference_training(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [row(LEVEL)])
    with pytest.raises(SweetError, match="No pair can be made"):
        run_pair(run, PairConfig(unpaired="best"), Silent())


def test_candidates_without_a_turn_are_not_called_equal(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [])
    with pytest.raises(SweetError, match="candidates-1 has candidates of no turn"):
        run_pair(run, PairConfig(), Silent())


@pytest.mark.parametrize(
    ("candidates", "why", "fix"),
    [
        ([("same", 0.1), ("same", 0.1)], "are the same reply, or worth the same", "sweet rank"),
        ([("one", 0.1), ("other", 0.1)], "are the same reply, or worth the same", "sweet rank"),
        ([("one", 0.1), ("other", 0.3)], "none differ by --min-gap 0.5", "a smaller --min-gap"),
    ],
)
def test_the_error_of_no_pair_blames_what_prevented_it(
    tmp_path: Path, candidates: list[tuple[str, float]], why: str, fix: str
) -> None:
    run = make_run(tmp_path / "run", [row(candidates)])
    with pytest.raises(SweetError, match=why) as caught:
        run_pair(run, PairConfig(min_gap=0.5), Silent())
    assert fix in str(caught.value.fix)
    assert ("--min-gap" in f"{caught.value.what} {caught.value.fix}") == ("none" in why)
