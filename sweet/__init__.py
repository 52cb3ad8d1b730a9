"""SWEET-RL and ColBench end to end: collaborate, score, credit each turn, learn.

The names below are the public interface; docs/api.md documents them. Each is imported when it is first used, so that
`import sweet` itself is fast. All other modules may change between versions.
"""

from __future__ import annotations

from importlib import import_module

from sweet import installation

TYPE_CHECKING = False  # type checkers assume True; importing typing would cost more than all else here

if TYPE_CHECKING:
    from sweet.api import compare as compare
    from sweet.api import evaluate as evaluate
    from sweet.api import gateway as gateway
    from sweet.api import import_trajectories as import_trajectories
    from sweet.api import label as label
    from sweet.api import load_tasks as load_tasks
    from sweet.api import pair as pair
    from sweet.api import play as play
    from sweet.api import rank as rank
    from sweet.api import read_trajectories as read_trajectories
    from sweet.api import rollout as rollout
    from sweet.api import train as train
    from sweet.api import train_actor as train_actor
    from sweet.api import train_critic as train_critic
    from sweet.api import train_online as train_online
    from sweet.errors import SweetError as SweetError
    from sweet.online.config import TrainOnlineConfig as TrainOnlineConfig
    from sweet.pipeline.config import LoopConfig as LoopConfig
    from sweet.preferences.config import LabelConfig as LabelConfig
    from sweet.preferences.config import PairConfig as PairConfig
    from sweet.ranking.config import RankConfig as RankConfig
    from sweet.rollouts.config import RolloutConfig as RolloutConfig
    from sweet.rollouts.gateway.config import GatewayConfig as GatewayConfig
    from sweet.rollouts.play.config import PlayConfig as PlayConfig
    from sweet.runs.run import Run as Run
    from sweet.scoring.config import EvalConfig as EvalConfig
    from sweet.scoring.results.compare import CompareConfig as CompareConfig
    from sweet.stages.base import Progress as Progress
    from sweet.stages.base import Reporter as Reporter
    from sweet.stages.base import Silent as Silent
    from sweet.stages.base import StageResult as StageResult
    from sweet.tasks.base import Task as Task
    from sweet.tasks.registry import register_kind as register_kind
    from sweet.tasks.trajectory import Trajectory as Trajectory
    from sweet.training.config import TrainActorConfig as TrainActorConfig
    from sweet.training.config import TrainCriticConfig as TrainCriticConfig

__version__ = installation.VERSION

_NAMES = {
    "sweet.api": (
        *("compare", "evaluate", "gateway", "import_trajectories", "label", "load_tasks", "pair", "play", "rank"),
        *("read_trajectories", "rollout", "train", "train_actor", "train_critic", "train_online"),
    ),
    "sweet.errors": ("SweetError",),
    "sweet.online.config": ("TrainOnlineConfig",),
    "sweet.pipeline.config": ("LoopConfig",),
    "sweet.preferences.config": ("LabelConfig", "PairConfig"),
    "sweet.ranking.config": ("RankConfig",),
    "sweet.rollouts.config": ("RolloutConfig",),
    "sweet.rollouts.gateway.config": ("GatewayConfig",),
    "sweet.rollouts.play.config": ("PlayConfig",),
    "sweet.runs.run": ("Run",),
    "sweet.scoring.config": ("EvalConfig",),
    "sweet.scoring.results.compare": ("CompareConfig",),
    "sweet.stages.base": ("Progress", "Reporter", "Silent", "StageResult"),
    "sweet.tasks.base": ("Task",),
    "sweet.tasks.registry": ("register_kind",),
    "sweet.tasks.trajectory": ("Trajectory",),
    "sweet.training.config": ("TrainActorConfig", "TrainCriticConfig"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(["__version__", *_MODULES])


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'sweet' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
