"""SWEET-RL and ColBench end to end: collaborate, score, credit each turn, learn.

The names below are the public interface; docs/api.md documents them. Each is imported when it is first used, so that
`import sweet` itself is fast. All other modules may change between versions.
"""

from __future__ import annotations

from importlib import import_module

from sweet import installation

TYPE_CHECKING = False  # type checkers assume True; importing typing would cost more than all else here

if TYPE_CHECKING:
    from sweet.api import (
        compare,
        evaluate,
        import_trajectories,
        label,
        load_tasks,
        pair,
        play,
        rank,
        read_trajectories,
        rollout,
        train,
        train_actor,
        train_critic,
        train_online,
    )
    from sweet.errors import SweetError
    from sweet.online.config import TrainOnlineConfig
    from sweet.pipeline.config import LoopConfig
    from sweet.preferences.config import LabelConfig, PairConfig
    from sweet.ranking.config import RankConfig
    from sweet.rollouts.config import RolloutConfig
    from sweet.rollouts.play.config import PlayConfig
    from sweet.runs.run import Run
    from sweet.scoring.config import EvalConfig
    from sweet.scoring.results.compare import CompareConfig
    from sweet.stages.base import Reporter, StageResult
    from sweet.tasks.base import Task
    from sweet.tasks.trajectory import Trajectory
    from sweet.training.config import TrainActorConfig, TrainCriticConfig

__version__ = installation.VERSION

_MODULES = {
    "CompareConfig": "sweet.scoring.results.compare",
    "EvalConfig": "sweet.scoring.config",
    "LabelConfig": "sweet.preferences.config",
    "LoopConfig": "sweet.pipeline.config",
    "PairConfig": "sweet.preferences.config",
    "PlayConfig": "sweet.rollouts.play.config",
    "RankConfig": "sweet.ranking.config",
    "Reporter": "sweet.stages.base",
    "RolloutConfig": "sweet.rollouts.config",
    "Run": "sweet.runs.run",
    "StageResult": "sweet.stages.base",
    "SweetError": "sweet.errors",
    "Task": "sweet.tasks.base",
    "TrainActorConfig": "sweet.training.config",
    "TrainCriticConfig": "sweet.training.config",
    "TrainOnlineConfig": "sweet.online.config",
    "Trajectory": "sweet.tasks.trajectory",
    "compare": "sweet.api",
    "evaluate": "sweet.api",
    "import_trajectories": "sweet.api",
    "label": "sweet.api",
    "load_tasks": "sweet.api",
    "pair": "sweet.api",
    "play": "sweet.api",
    "rank": "sweet.api",
    "read_trajectories": "sweet.api",
    "rollout": "sweet.api",
    "train": "sweet.api",
    "train_actor": "sweet.api",
    "train_critic": "sweet.api",
    "train_online": "sweet.api",
}

__all__ = [
    "CompareConfig",
    "EvalConfig",
    "LabelConfig",
    "LoopConfig",
    "PairConfig",
    "PlayConfig",
    "RankConfig",
    "Reporter",
    "RolloutConfig",
    "Run",
    "StageResult",
    "SweetError",
    "Task",
    "TrainActorConfig",
    "TrainCriticConfig",
    "TrainOnlineConfig",
    "Trajectory",
    "__version__",
    "compare",
    "evaluate",
    "import_trajectories",
    "label",
    "load_tasks",
    "pair",
    "play",
    "rank",
    "read_trajectories",
    "rollout",
    "train",
    "train_actor",
    "train_critic",
    "train_online",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sweet' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
