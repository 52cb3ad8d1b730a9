"""Every stage that counts its work shows that in the run while it works, whoever calls it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.inspection.status import report
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import encode
from sweet.runs.progress import AttemptProgress
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.base import Progress, Silent
from sweet.training.config import TrainCriticConfig
from sweet.training.stage import run_train_critic
from tests.stages.learn_runs import make_agent, make_dialogues, make_run


class Looking(Silent):
    """Looks at the run whenever a bar begins.

    Attributes:
        seen: the progress of the newest attempt at that moment.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.seen: list[AttemptProgress | None] = []

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Progress]:
        if self.run.exists():
            self.seen += [attempt.progress for attempt in report(Run.open(self.run)).attempts[-1:]]
        with super().progress(title, total) as bar:
            yield bar


def counted(looking: Looking) -> list[tuple[str, int | None]]:
    return [(one.title, one.total) for one in looking.seen if one is not None]


def test_dialogues_and_their_scores(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "html")
    looking = Looking(run.path)
    config = RolloutConfig(task="html", tasks="pages", split="test", agent="scripted", num_tasks=1, max_turns=1)
    run_rollout(run, config, looking)
    assert counted(looking) == [("dialogues", 1)]


def test_imported_dialogues_and_their_scores(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    rows = [
        {"task": t.task.model_dump(mode="json"), "dialogue_history": [{"role": "user", "content": "x"}], "answer": "y"}
        for t, _ in make_dialogues(1, 2)
    ]
    file.write_bytes(b"".join(encode(row) + b"\n" for row in rows))
    looking = Looking(tmp_path / "run")
    run_data_import(file, looking.run, DataImportConfig(), looking)
    run_eval(Run.open(looking.run), EvalConfig(sandbox="unsafe"), looking)
    assert counted(looking) == [("importing", 2), ("answers", 2)]


def test_the_critics_training_and_the_ranking(tmp_path: Path) -> None:
    run = make_run(tmp_path, make_agent(tmp_path / "agent"), tasks=2, samples=2)
    run_label(run, LabelConfig(), Silent())
    looking = Looking(run.path)
    run_train_critic(run, TrainCriticConfig(epochs=1, batch=2, holdout=0), looking)
    run_rank(run, RankConfig(candidates=2, limit=2, max_tokens=4), looking)
    assert counted(looking) == [("train-critic", 1), ("turns", 1)]
