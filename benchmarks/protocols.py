"""What protocol `upstream` changes, in figures: on the same dialogues of the packaged agent, and the same replies.

The agent plays micro tasks; a critic and two regression heads are trained on them. The replies that were sampled at
some turns are ranked by the same critic in four ways, which separate upstream's habits: the reference without c, and
what it reads of a reply. Prints JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from sweet.learn.rows import Candidate, CandidateRow
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.ranking.turns import first_turns, published_order, sample_turns
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.tasks.base import ProtocolName
from sweet.tasks.micro.family import MICRO
from sweet.tasks.trajectory import Trajectory
from sweet.training.config import TrainCriticConfig
from sweet.training.prepare import prepare_critic
from sweet.training.stage import run_train_critic

PROTOCOLS: tuple[ProtocolName, ...] = ("paper", "upstream")
RANKINGS: dict[str, dict[str, Any]] = {
    "paper": {},
    "paper, reference without c": {"reference_context": "dialogue"},
    "upstream, reference with c": {"protocol": "upstream", "reference_context": "hidden"},
    "upstream": {"protocol": "upstream"},
}

Rows = Mapping[tuple[str, int], Sequence[Candidate]]


def training_text(run: Run, protocol: ProtocolName) -> dict[str, int]:
    """Return how much a critic is trained on."""
    training, _ = prepare_critic(run, TrainCriticConfig(protocol=protocol), Silent(), weights=False)
    sequences = training.pool.sequences
    supervised = sum(span.stop - span.start for sequence in sequences for span in sequence.spans)
    return {"sequences": len(sequences), "tokens": sum(len(s.ids) for s in sequences), "supervised": supervised}


def chosen_turns(dialogues: Sequence[Trajectory], seed: int) -> dict[str, int]:
    """Return how many turns each protocol ranks, and how many of them are the same."""
    sampled = set(sample_turns(dialogues, seed=seed, fraction=0.1))
    first = set(first_turns(published_order(dialogues), fraction=0.1))
    of = sum(len(dialogue.agent_turns) for dialogue in dialogues)
    return {"of": of, "paper": len(sampled), "upstream": len(first), "both": len(sampled & first)}


def compare_rankings(found: Mapping[str, Rows]) -> dict[str, Any]:
    """Return the means of each ranking, and how often it orders two different candidates otherwise than `paper`."""
    results = {}
    for name, rows in found.items():
        replies = [candidate for candidates in rows.values() for candidate in candidates]
        order = [
            (one.advantage - other.advantage) * (usual.advantage - usual_other.advantage)
            for key, candidates in rows.items()
            for (one, usual), (other, usual_other) in itertools.combinations(
                zip(candidates, found["paper"][key], strict=True), 2
            )
            if one.text != other.text
        ]
        best = [
            max(candidates, key=lambda c: c.advantage).text != max(found["paper"][key], key=lambda c: c.advantage).text
            for key, candidates in rows.items()
        ]
        results[name] = {
            "tokens": round(fmean(c.tokens or 0 for c in replies), 3),
            "logprob": round(fmean(c.logprob or 0 for c in replies), 4),
            "reference": round(fmean(c.reference or 0 for c in replies), 4),
            "advantage": round(fmean(c.advantage for c in replies), 4),
            "other_order": round(fmean(product < 0 for product in order), 4),
            "other_best": round(fmean(best), 4),
        }
    return results


def measure(run: Run, *, tasks: int, samples: int, candidates: int, seed: int) -> dict[str, Any]:
    asked = RolloutConfig(
        tasks=MICRO.name,
        split="train",
        agent="micro",
        num_tasks=tasks,
        samples=samples,
        max_turns=MICRO.turns,
        max_tokens=MICRO.reply_tokens,
        seed=seed,
    )
    [rollouts] = run_rollout(run, asked, Silent()).artifacts
    run_eval(run, EvalConfig(), Silent())
    preferences = run_label(run, LabelConfig(), Silent()).metrics.pairs
    dialogues = list(read_jsonl(run.file(rollouts), Trajectory))
    replies = [t.dialogue_history[i] for t in dialogues for i in t.agent_turns]
    [critic] = run_train_critic(run, TrainCriticConfig(seed=seed), Silent()).artifacts
    found: dict[str, Rows] = {}
    sampled: dict[str, Any] = {"candidates": candidates, "max_tokens": MICRO.reply_tokens, "fraction": 0.2}
    for name, options in RANKINGS.items():
        given = {"replies": "candidates-1"} if found else sampled
        [made] = run_rank(run, RankConfig(from_=critic.id, seed=seed, **given, **options), Silent()).artifacts
        found[name] = {row.key: row.candidates for row in read_jsonl(run.file(made), CandidateRow)}
    heads = {}
    for protocol in PROTOCOLS:
        trained = run_train_critic(
            run, TrainCriticConfig(variant="regression", protocol=protocol, holdout=0.3, seed=seed), Silent()
        )
        heads[protocol] = {"accuracy": trained.metrics.accuracy, "heldout_accuracy": trained.metrics.heldout_accuracy}
    return {
        "dialogues": len(dialogues),
        "preferences": preferences,
        "replies": len(replies),
        "replies_seen_in_part": sum(reply.content != reply.said for reply in replies),
        "training": {protocol: training_text(run, protocol) for protocol in PROTOCOLS},
        "turns": chosen_turns(dialogues, seed),
        "cut_off": sum(not c.ended for row in found["paper"].values() for c in row),
        "rankings": compare_rankings(found),
        "regression": heads,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in {"tasks": 20, "samples": 4, "candidates": 16, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Run.create(Path(folder) / "run", task="code"), **vars(parser.parse_args()))
    sys.stdout.write(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
