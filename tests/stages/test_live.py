"""Every stage that counts its work shows that in the run while it works, and those that can be paused are, whoever
calls them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.inspection.status import report
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.ranking.config import RankConfig
from sweet.ranking.pipeline import rank_turns
from sweet.ranking.stage import run_rank
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import encode, read_jsonl
from sweet.runs.progress import AttemptProgress, read_progress
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import _scored, run_eval
from sweet.stages.base import Progress, Silent, StageConfig
from sweet.stages.failures import Failures
from sweet.stages.live import PAUSE, LiveReporter
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory
from sweet.training.config import TrainCriticConfig
from sweet.training.stage import run_train_critic
from tests.stages.asking import ask, send, wait_until_paused
from tests.stages.learn_runs import make_agent, make_dialogues, make_run, put, score


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


class Thread(threading.Thread):
    """Goes on with a stage once it is paused, and keeps what `seen` returns in the pause."""

    def __init__(self, run: Run, attempt: str, seen: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.run_, self.attempt, self.seen = run, attempt, seen
        self.found: list[Any] = []

    def run(self) -> None:
        wait_until_paused(self.run_.path, self.attempt)
        self.found.append(self.seen())
        time.sleep(0.2)
        self.found.append(self.seen())
        send(self.run_, self.attempt, "resume")


@pytest.fixture
def polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.stages.live.POLL_SECONDS", 0.01)


@pytest.mark.usefixtures("polled")
def test_scoring_ends_what_it_has_begun_before_it_pauses(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    rollouts = put(run, "rollout", "rollouts", [trajectory for trajectory, _ in make_dialogues(3, 2)])
    under_way: list[int] = []

    class Scorer:
        """Reads two trajectories ahead, and asks for the pause when it gets the third."""

        portions = 0

        def score(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Score]]:
            self.portions += 1
            ahead: list[Trajectory] = []
            for number, trajectory in enumerate(trajectories, 1):
                if number == 3 and self.portions == 1:
                    send(run, "eval-1", "pause")
                    time.sleep(0.05)  # the next look at the requests is due
                ahead.append(trajectory)
                under_way[:] = [len(ahead)]
                if len(ahead) > 2:
                    yield ahead[0], score(ahead.pop(0), 1.0)
            for trajectory in ahead:
                yield trajectory, score(trajectory, 1.0)
            under_way[:] = [0]

    def ends_of_what_was_begun() -> tuple[list[int], int]:
        ends = time.monotonic() + 60
        while under_way != [0] and time.monotonic() < ends:  # the pause is shown before what was begun has ended
            time.sleep(0.01)
        return list(under_way), scorer.portions

    scorer: Any = Scorer()
    with run.attempt("eval", StageConfig(), inputs=[rollouts]) as attempt:
        live = LiveReporter(Silent(), attempt, PAUSE)
        other = Thread(run, "eval-1", ends_of_what_was_begun)
        other.start()
        found = [one.id for one, _ in _scored(scorer, read_jsonl(run.file(rollouts), Trajectory), live)]
        other.join()
    assert found == [trajectory.id for trajectory, _ in make_dialogues(3, 2)]
    assert scorer.portions == 2
    assert other.found == [([0], 1)] * 2, "nothing is under way in the pause, and nothing is begun"


@pytest.mark.usefixtures("polled")
def test_a_training_pauses_between_two_steps(tmp_path: Path) -> None:
    run = make_run(tmp_path, make_agent(tmp_path / "agent"), tasks=3, samples=2)
    run_label(run, LabelConfig(), Silent())
    rows = run.path / "logs" / "train-critic-1.jsonl"

    class Pausing(Silent):
        @contextmanager
        def progress(self, title: str, total: int | None) -> Iterator[Progress]:
            send(run, "train-critic-1", "pause")
            with super().progress(title, total) as bar:
                yield bar

    other = Thread(run, "train-critic-1", lambda: len(rows.read_text().splitlines()))
    other.start()
    result = run_train_critic(run, TrainCriticConfig(epochs=3, batch=3, holdout=0), Pausing())
    other.join()
    assert other.found == [1, 1]
    assert result.metrics.steps == len(rows.read_text().splitlines()) == 3
    (recorded,) = (one for one in run.manifest().attempts if one.stage == "train-critic")
    assert recorded.finished is not None
    lasted = (recorded.finished - recorded.started).total_seconds()
    assert result.metrics.seconds is not None
    assert result.metrics.seconds <= lasted - 0.2, "the pause is no time of the training"


@pytest.mark.usefixtures("polled")
def test_a_ranking_samples_and_judges_nothing_in_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.ranking.pipeline.POLL_SECONDS", 0.01)
    run = Run.create(tmp_path / "run")
    calls: list[str] = []

    class Sampler:
        async def sample(self, turn: Any) -> Any:
            calls.append("sampled")
            if len(calls) == 1:
                await ask(run, "rank-1", "pause")
            return turn

    class Judge:
        max_calls = batch_size = 1

        async def judge(self, turns: Sequence[Any]) -> list[Any]:
            calls.append("judged")
            return list(turns)

    class Writer:
        failures, written = Failures(), 0

        def write(self, turn: Any, judged: Any) -> None:
            calls.append("written")

    sampler, judge, writer = Sampler(), Judge(), Writer()
    parts: tuple[Any, Any, Any] = (sampler, judge, writer)
    with run.attempt("rank", StageConfig()) as attempt:
        live = LiveReporter(Silent(), attempt, PAUSE)
        other = Thread(run, "rank-1", lambda: list(calls))
        other.start()
        turns: list[Any] = ["a", "b"]
        asyncio.run(rank_turns(turns, *parts, live, concurrency=1))
        other.join()
    assert other.found == [["sampled"], ["sampled"]]
    assert calls.count("written") == 2


def test_what_a_stage_does_not_accept_is_refused(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    with run.attempt("train-actor", StageConfig()) as attempt:
        live = LiveReporter(Silent(), attempt)
        send(run, attempt.id, "pause")
        live.wait_while_paused()
        progress = read_progress(attempt.progress_path)
        assert progress is not None
        assert [answer.refused for answer in progress.answers] == [True]
        assert not progress.paused
