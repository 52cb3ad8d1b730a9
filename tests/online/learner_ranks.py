"""The program that `test_ranks` starts on two ranks: a learner of each case learns two steps, and what comes out is
written by rank 0. All cases run in one start, because imports take most of the time."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweet import collector

with collector.paused():
    import torch

    from sweet.learn.estimate import ZeroSettings
    from sweet.learn.metrics import Record
    from sweet.learn.zero import init_ranks
    from sweet.online.learner import Learner
    from sweet.online.rank import Noting, make_learner, perform
    from sweet.online.ranks import RankJob

CALLS = "calls.json"
STEPS = (1, 2)


@dataclass(frozen=True)
class Case:
    """A training. `resumed`: it also begins once more from the checkpoint of its first step."""

    rule: str
    zero: ZeroSettings
    options: Sequence[str] = ()
    more: dict[str, Any] = field(default_factory=dict)
    resumed: bool = False

    @property
    def of_one(self) -> str:
        """The name of the training without ranks that it must be equal to."""
        return "-".join([self.rule, *self.options, *self.more])

    @property
    def name(self) -> str:
        return f"{self.of_one}-{self.zero.stage}-{self.zero.offload}"


AVERAGE = ("teacher=average", "rate=0.5")
LORA = {"lora": 2, "lora_alpha": 8, "lr": 5e-3}
CASES = [
    Case("grpo", ZeroSettings(2)),
    Case("grpo", ZeroSettings(3, "all")),
    Case("grpo", ZeroSettings(3), more=LORA, resumed=True),
    Case("grpo", ZeroSettings(0), more={"batch": 3, "epochs": 2, "packing": "plain"}),
    Case("rft", ZeroSettings(3)),
    Case("opsd", ZeroSettings(3), AVERAGE, resumed=True),
    Case("opsd", ZeroSettings(3), ("form=top", "k=4")),
    Case("istar", ZeroSettings(3), ("reward-batch=4",), resumed=True),
    Case("sweet-pg", ZeroSettings(3), ("episode=yes",)),
]


def results(path: Path) -> tuple[Path, Path]:
    """Return the files of a training: its records, and its weights."""
    return path.with_suffix(".json"), path.with_suffix(".pt")


def learn(learner: Learner, calls: Sequence[dict[str, Any]], path: Path, steps: Sequence[int] = STEPS) -> None:
    """Learn steps, with a checkpoint after the first of all, and write what came out."""
    records: list[Record | None] = []
    for step in steps:
        records.append(perform(learner, "learn", calls[step - 1], path))
        if step == STEPS[0]:
            state = {"step": step, "digest": "d"}
            perform(learner, "save", {"path": str(checkpoint(path)), "state": state}, path)
    weights = {"trained": learner.weights(), "sampled": learner.sampled_weights()}
    if learner.rank == 0:
        found, stored = results(path)
        found.write_text(json.dumps({"records": records, "updates": learner.updates}))
        torch.save(weights, stored)


def checkpoint(path: Path) -> Path:
    return path.with_name(f"{path.name}-checkpoint") / "settled.json"


def main(folder: Path) -> None:
    device = init_ranks("cpu")
    calls = json.loads((folder / CALLS).read_text())
    for case in CASES:
        job, path = RankJob.read(folder / case.name), folder / case.name / "ranks"
        learn(make_learner(job, device, Noting()), calls, path)
        if case.resumed:
            again = make_learner(job, device, Noting())
            state = perform(again, "load", {"path": str(checkpoint(path)), "digest": "d"}, path)
            assert state is not None
            learn(again, calls, path.with_name("resumed"), STEPS[state["step"] :])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    torch.distributed.destroy_process_group()
    collector.before_exit()
