"""`sweet pair`: step-level pairs from ranked candidates.

At each turn the candidates are ordered by their advantage. `random-halves` draws the chosen reply from the upper half
and the rejected reply from the lower half; `best-worst` pairs the best with the worst, the second with the last but
one, and so on. The replies of a pair differ, and no pair of replies occurs twice at a turn. The random choices depend
on the seed and the turn alone, not on the order of the file.

A turn whose replies are all worth the same gives no pair. With `unpaired="best"` its best reply becomes a row without a
rejected one. The actor learns the likelihood of that reply, which keeps the form of replies that pairs of other turns
would let it forget.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from sweet.errors import SweetError
from sweet.hints import option
from sweet.learn.rows import CandidateRow, Pair
from sweet.preferences.config import PairConfig
from sweet.runs.jsonl import read_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult, digest_of
from sweet.stages.frame import Frame
from sweet.stages.meta import PairsMeta
from sweet.stages.plans import Plan
from sweet.stages.record import Record
from sweet.units import count


class PairMetrics(Record):
    """The metrics of `sweet pair`, and what its plan counts."""

    pairs: int
    """pairs made"""
    turns: int
    """turns with candidates"""
    candidates: int
    """their candidates"""
    turns_with_pairs: int
    """turns with at least one pair"""
    unpaired: int
    """turns without a pair whose best reply is kept"""
    mean_gap: float | None
    """mean difference of the chosen and the rejected advantage"""


def run_pair(run: Run, config: PairConfig, reporter: Reporter) -> StageResult[PairMetrics]:
    """Write the pairs of the run's ranked candidates.

    Raises:
        SweetError: not one pair can be made.
    """
    candidates = run.find("candidates", config.from_, needed_by="pair")
    reporter.say(f"Pairing the candidates of {candidates.id}.")
    with Frame("pair", run, config, reporter, inputs=[candidates]) as frame:
        pairs, metrics = _draw_pairs(run, candidates, config)
        if not metrics.turns:
            what = f"{candidates.id} has candidates of no turn; the log of its ranking says why."
            raise SweetError(what, where=candidates.id, fix="sweet rank")
        if not metrics.pairs:
            why = "the candidates of each turn are the same reply, or worth the same"
            fix = "more --candidates, a higher --temperature or another --judge in sweet rank"
            if _draw_pairs(run, candidates, config.model_copy(update={"min_gap": 0.0}))[1].pairs:
                why, fix = f"none differ by {option('min_gap', config.min_gap)}", "a smaller --min-gap"
            what = f"No pair can be made of {count(metrics.turns, 'turn')}: {why}."
            raise SweetError(what, where=candidates.id, fix=fix)
        rows = frame.rows("pairs", PairsMeta(candidates=candidates.id, strategy=config.strategy))
        for pair in pairs:
            rows.write(pair)
        return frame.result(metrics, frame.finish(rows, metrics))


def plan_pair(run: Run, config: PairConfig, reporter: Reporter) -> Plan[PairMetrics]:
    """Return the plan of `run_pair`: the pairs are drawn, and not written."""
    candidates = run.find("candidates", config.from_, needed_by="pair")
    reporter.say(f"Reading the candidates of {candidates.id}.")
    return Plan(work=_draw_pairs(run, candidates, config)[1], assumed=[])


def _draw_pairs(run: Run, candidates: Artifact, config: PairConfig) -> tuple[list[Pair], PairMetrics]:
    used = _draw_turns(list(read_jsonl(run.file(candidates), CandidateRow)), config)
    pairs = [pair for row in used for pair in turn_rows(row, config)]
    gaps = [pair.chosen.advantage - pair.rejected.advantage for pair in pairs if pair.rejected is not None]
    unpaired = len(pairs) - len(gaps)
    return pairs, PairMetrics(
        pairs=len(gaps),
        turns=len(used),
        candidates=sum(len(row.candidates) for row in used),
        turns_with_pairs=len({(pair.trajectory_id, pair.turn) for pair in pairs}) - unpaired,
        unpaired=unpaired,
        mean_gap=round(sum(gaps) / len(gaps), 6) if gaps else None,
    )


def _draw_turns(rows: list[CandidateRow], config: PairConfig) -> list[CandidateRow]:
    """Return a random share of the turns, drawn by the seed, in the order of their keys."""
    by_draw = sorted(rows, key=lambda row: digest_of([config.seed, "turn", *row.key]))
    return sorted(by_draw[: math.ceil(config.fraction * len(rows))], key=lambda row: row.key)


def turn_rows(row: CandidateRow, config: PairConfig) -> list[Pair]:
    """Return the pairs of one turn; of a turn without any what `config.unpaired` says."""
    pairs = list(turn_pairs(row, config))
    if pairs or config.unpaired == "omit":
        return pairs
    max_advantage = max(candidate.advantage for candidate in row.candidates)
    best = sorted((c for c in row.candidates if c.advantage == max_advantage), key=lambda c: c.whole)
    return [Pair.of(row, "alone", random.Random(digest_of([config.seed, "unpaired", *row.key])).choice(best))]


def turn_pairs(row: CandidateRow, config: PairConfig) -> Iterator[Pair]:
    """Yield the pairs of one turn, at most `config.pairs`."""
    ranked = sorted(row.candidates, key=lambda c: (-c.advantage, c.whole))
    half = len(ranked) // 2
    upper, lower = ranked[:half], ranked[len(ranked) - half :]
    couples = list(zip(upper, reversed(lower), strict=True))
    if config.strategy == "random-halves":
        couples = [(good, bad) for good in upper for bad in lower]
        # Python guarantees the sequence of `random.Random` for a string as the seed.
        random.Random(digest_of([config.seed, "pairs", *row.key])).shuffle(couples)
    min_gap = max(config.min_gap, config.min_gap_share * (ranked[0].advantage - ranked[-1].advantage))
    drawn: set[tuple[str, str]] = set()
    for good, bad in couples:
        gap = good.advantage - bad.advantage
        if len(drawn) == config.pairs:
            return
        if good.whole == bad.whole or gap <= 0 or gap < min_gap or (good.whole, bad.whole) in drawn:
            continue
        drawn.add((good.whole, bad.whole))
        yield Pair.of(row, f"p{len(drawn)}", good, bad)
