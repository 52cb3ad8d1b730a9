"""Rank replies with a judge of your own instead of the critic, and make the pairs that an actor learns from.

python examples/own_judge.py [RUN]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import sweet
from sweet.tasks.base import Message


def judge(task: sweet.Task, messages: Sequence[Message], replies: Sequence[str]) -> list[float]:
    """Score replies: a question about a fact of the task that was not yet asked for is worth 1, anything else 0.

    Like a critic in training, the judge may read the hidden information of the task.
    """
    asked = " ".join(message.content for message in messages if message.role == "assistant")
    missing = [fact for fact in task.facts if not any(cue in asked for cue in fact.cues)]
    return [float("?" in reply and any(cue in reply for fact in missing for cue in fact.cues)) for reply in replies]


def main(path: Path) -> None:
    run = sweet.Run.open_or_create(path)
    sweet.rollout(run, sweet.RolloutConfig(tasks="micro", split="train", num_tasks=4))
    sweet.rank(run, sweet.RankConfig(candidates=4, fraction=1.0, limit=12, temperature=1.5), judge=judge)
    result = sweet.pair(run, sweet.PairConfig(min_gap=0.5))
    [pairs] = result.artifacts
    print(f"{pairs.rows} pairs in {run.file(pairs)}; train on them with sweet.train_actor(run)")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/judged"))
