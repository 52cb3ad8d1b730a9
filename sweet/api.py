"""The functions of the package: the stages of the pipeline, and what goes into them and comes out.

Each stage function calls the one that the stage's command calls, so runs made from Python and from the command line are
the same. A configuration has one field for each option of the command; without one the defaults apply. A stage is
silent unless it gets a reporter. The code of a stage is imported when it is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweet.runs.run import Run
from sweet.runs.stages import stage_named
from sweet.stages.base import PlannedConfig, Reporter, Silent, StageConfig, StageResult
from sweet.stages.resuming import with_settings_of_unfinished

if TYPE_CHECKING:
    from sweet.judges.base import ScoreReplies
    from sweet.online.config import TrainOnlineConfig
    from sweet.online.metrics import OnlineMetrics
    from sweet.pipeline.config import LoopConfig
    from sweet.pipeline.metrics import LoopMetrics
    from sweet.preferences.config import LabelConfig, PairConfig
    from sweet.preferences.label import LabelMetrics
    from sweet.preferences.pair import PairMetrics
    from sweet.ranking.config import RankConfig
    from sweet.ranking.metrics import RankMetrics
    from sweet.rollouts.config import RolloutConfig
    from sweet.rollouts.gateway.config import GatewayConfig
    from sweet.rollouts.metrics import RolloutMetrics
    from sweet.rollouts.play.config import PlayConfig, PlayMetrics
    from sweet.rollouts.play.interface import Interface
    from sweet.scoring.config import EvalConfig
    from sweet.scoring.function import RewardFunction
    from sweet.scoring.metrics import EvalMetrics
    from sweet.scoring.results.compare import CompareConfig
    from sweet.scoring.results.metrics import ComparisonMetrics
    from sweet.tasks.base import Task
    from sweet.tasks.trajectory import Trajectory
    from sweet.training.config import TrainActorConfig, TrainCriticConfig
    from sweet.training.metrics import TrainMetrics


def load_tasks(
    tasks: str | Path | None = None,
    *,
    split: str = "test",
    kind: str = "code",
    holdout: float | None = None,
    holdout_validation: float | None = None,
) -> list[Task]:
    """Load the tasks of a named dataset or of a JSON Lines file.

    Args:
        tasks: a dataset such as `micro`, or the path of a file; None for the first dataset of the kind.
        split: which part of a named dataset, or of a file whose rows name their `split`. All tasks of another file.
        kind: the kind of task: `code`, `html`, or one that an installed package brings.
        holdout: the share of a file's tasks that are the split `test`, as in `RolloutConfig`.
        holdout_validation: the share of them that are the split `validation`.

    Raises:
        SweetError: there is no such kind, dataset or file, or a row of the file is wrong.
    """
    from sweet.tasks.registry import task_kind
    from sweet.tasks.splits import Holdout, load_split

    found = task_kind(kind)
    source = found.tasks_for() if tasks is None else str(tasks)
    return load_split(found, source, split, Holdout(holdout, holdout_validation)).tasks


def import_trajectories(
    file: str | Path,
    path: str | Path,
    *,
    kind: str = "code",
    prompts: str | Path | None = None,
    reporter: Reporter | None = None,
) -> Run:
    """Make a run of dialogues that another program played, or add them to a run.

    Args:
        file: JSON Lines or a JSON list in the published layout: `task`, `dialogue_history` and `answer` in each row.
        path: the directory of the run; it is made if it does not exist.
        kind: the kind of the tasks.
        prompts: the folder of the agent's system prompt in rows that record none; the packaged one where None.

    Raises:
        SweetError: a row is wrong. Nothing is written then.
    """
    from sweet.datasets.importing import DataImportConfig, run_data_import

    config = DataImportConfig(task=kind, prompts=None if prompts is None else Path(prompts))
    return Run.open(run_data_import(Path(file), Path(path), config, reporter or Silent()).run)


def read_trajectories(run: Run, rollouts: str | None = None) -> Iterator[Trajectory]:
    """Yield the dialogues of a run, in their order, with the rewards of the newest scores.

    Args:
        rollouts: the id of the rollouts, such as `rollouts-2`; None for the newest.

    Raises:
        SweetError: the run has no such rollouts.
    """
    from sweet.datasets.layout import newest_rewards
    from sweet.runs.jsonl import read_jsonl
    from sweet.tasks.trajectory import Trajectory

    artifact = run.find("rollouts", rollouts, needed_by="read_trajectories")
    rewards = newest_rewards(run, artifact)
    for trajectory in read_jsonl(run.file(artifact), Trajectory):
        yield trajectory.model_copy(update={"reward": rewards.get(trajectory.id, trajectory.reward)})


def train(run: Run, config: LoopConfig | None = None, *, reporter: Reporter | None = None) -> StageResult[LoopMetrics]:
    """Train an agent on tasks: all stages, round after round, by one recipe (docs/train.md).

    Called again on the same run, it continues where it stopped.

    Args:
        config: without one, the recipe of the run.

    Raises:
        SweetError: a stage failed; or changed settings would repeat finished steps, see `LoopConfig.redo`.
    """
    from sweet.pipeline.config import LoopConfig
    from sweet.pipeline.stage import run_train

    with _outside_of_event_loops():
        return run_train(run, config or LoopConfig(), reporter or Silent())


def rollout(
    run: Run, config: RolloutConfig | None = None, *, reporter: Reporter | None = None
) -> StageResult[RolloutMetrics]:
    """Play dialogues between the agent and the simulated human.

    Called again with the same configuration after an interruption, it plays the dialogues that are missing.

    Raises:
        SweetError: the configuration does not fit, a server cannot be reached, or too many dialogues failed.
    """
    return _call("rollout", run, config, reporter)


def gateway(
    run: Run, config: GatewayConfig | None = None, *, reporter: Reporter | None = None
) -> StageResult[RolloutMetrics]:
    """Serve the agent's model and the human to other programs until SIGINT or SIGTERM, and record their sessions.

    Raises:
        SweetError: the configuration, the model or the address cannot be used.
    """
    return _call("gateway", run, config, reporter)


def play(
    run: Run,
    config: PlayConfig | None = None,
    *,
    interface: Interface | None = None,
    reporter: Reporter | None = None,
) -> StageResult[PlayMetrics]:
    """Let a person play the human or the agent, until the last dialogue or until the person leaves.

    Args:
        interface: shows the dialogues and takes what the person does; default: the application on the terminal.

    Raises:
        SweetError: the configuration does not fit, a server cannot be reached, or the person plays elsewhere already.
    """
    if interface is None:
        from sweet.view.app.play import TextualInterface

        interface = TextualInterface(run)
    return _call("play", run, config, reporter, interface=interface)


def evaluate(
    run: Run,
    config: EvalConfig | None = None,
    *,
    reward: RewardFunction | None = None,
    reporter: Reporter | None = None,
) -> StageResult[EvalMetrics]:
    """Score dialogues: code by its hidden tests, pages by their similarity to the reference.

    Args:
        reward: a function to score with instead: `reward(trajectory)` returns a number from -1 to 1, 1 where the task
            is solved, or None for a dialogue that cannot be scored, which then counts in no rate. Without an answer, or
            after a fault, `trajectory.answer` is "No answer". Functions are known by their names and their source:
            rewards of different ones are not compared.

    Raises:
        SweetError: the run has no dialogues, this machine lacks what scoring needs, or the function returned something
            else.
    """
    return _call("eval", run, config, reporter, function=reward)


def label(
    run: Run, config: LabelConfig | None = None, *, reporter: Reporter | None = None
) -> StageResult[LabelMetrics]:
    """Make preferences between dialogues on the same task from their scores, for the critic to learn from.

    Raises:
        SweetError: the run has no scores, or no task has dialogues of different reward.
    """
    return _call("label", run, config, reporter)


def train_critic(
    run: Run, config: TrainCriticConfig | None = None, *, reporter: Reporter | None = None
) -> StageResult[TrainMetrics]:
    """Train the critic, which assigns each turn of a dialogue its credit.

    Raises:
        SweetError: the run has no preferences, or the training failed.
    """
    return _call("train-critic", run, config, reporter)


def rank(
    run: Run,
    config: RankConfig | None = None,
    *,
    judge: ScoreReplies | None = None,
    reporter: Reporter | None = None,
) -> StageResult[RankMetrics]:
    """Sample candidate replies at turns of the dialogues, and score each with the critic or another judge.

    Args:
        judge: a function to score with instead: `judge(task, messages, replies)` returns a number for each reply, more
            for a better one, or None for a reply that it cannot score. `messages` are those that the agent had seen.
            A ranking is made anew if the source of its function was changed.

    Raises:
        SweetError: the run has no critic, the configuration does not fit, or too many turns failed.
    """
    return _call("rank", run, config, reporter, function=judge)


def pair(run: Run, config: PairConfig | None = None, *, reporter: Reporter | None = None) -> StageResult[PairMetrics]:
    """Make pairs of a better and a worse reply from ranked candidates, for the actor to learn from.

    Raises:
        SweetError: the run has no candidates, or no turn has candidates that differ enough.
    """
    return _call("pair", run, config, reporter)


def train_actor(
    run: Run, config: TrainActorConfig | None = None, *, reporter: Reporter | None = None
) -> StageResult[TrainMetrics]:
    """Train the agent's model on pairs of replies, or with one of the baselines.

    Raises:
        SweetError: the run lacks what the objective learns from, or the training failed.
    """
    return _call("train-actor", run, config, reporter)


def train_online(
    run: Run, config: TrainOnlineConfig | None = None, *, reporter: Reporter | None = None
) -> StageResult[OnlineMetrics]:
    """Train the agent's model online: play, score and learn in many small steps, by a credit rule.

    Raises:
        SweetError: the configuration does not fit, too many dialogues of a step failed, or the training failed.
    """
    return _call("train-online", run, config, reporter)


def compare(
    a: Run | str | Path, b: Run | str | Path, config: CompareConfig | None = None
) -> StageResult[ComparisonMetrics]:
    """Compare two evaluations of the same tasks, task by task. Every difference is `b` minus `a`.

    Args:
        a: a run, or which of its evaluations: `"runs/first:scores-2"` or `"runs/first:rollouts-1"`.
        b: the same.

    Raises:
        SweetError: one of them does not exist, or they share no tasks.
    """
    from sweet.scoring.results.compare import CompareConfig, run_compare

    left, right = (str(side.path) if isinstance(side, Run) else side for side in (a, b))
    return run_compare(left, right, config or CompareConfig())


def _call(
    name: str, run: Run, config: StageConfig | None, reporter: Reporter | None, **arguments: object
) -> StageResult[Any]:
    stage = stage_named(name)
    assert stage is not None
    reporter, settings = reporter or Silent(), config or stage.config()
    if isinstance(settings, PlannedConfig) and not arguments.get("function"):
        run, settings = with_settings_of_unfinished(run, name, settings, reporter)
    with _outside_of_event_loops():
        result: StageResult = stage.run(run, settings, reporter, **arguments)
    return result


@contextmanager
def _outside_of_event_loops() -> Iterator[None]:
    """Let a stage start an event loop of its own in a thread where one is running, as in every cell of a notebook.

    The running loop waits for the stage, as it does for any call that blocks.
    """
    running: Any = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)
