"""Which servers a stage of the loop needs, by its configuration.

A rollout needs the human and the agent, a ranking the agent, both perhaps a judge; a training needs none, so that it
has all GPUs. An online training needs the human, and samples the agent itself, whose weights change at each step. The
other stages need none either, and leave those that run as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sweet.errors import UsageError
from sweet.judges.options import CRITIC_JUDGES, LOOKAHEAD
from sweet.llm.base import Role
from sweet.llm.scripted import SCRIPTED, has_model
from sweet.online.config import TrainOnlineConfig
from sweet.pipeline.servers import Servers
from sweet.ranking.config import RankConfig
from sweet.rollouts.config import RolloutConfig
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_of, given_model
from sweet.stages.base import StageConfig
from sweet.training.config import TrainConfig


@dataclass(frozen=True)
class Phase:
    """Attributes:
    models: the models that have a server.
    computes: the number of GPUs that the stage itself computes on, at least.
    """

    models: Mapping[Role, str]
    computes: int


@contextmanager
def serving(servers: Servers, config: StageConfig) -> Iterator[StageConfig]:
    """Run the servers that a stage needs, and yield its configuration with their addresses.

    Raises:
        SweetError: see `Servers.running`.
    """
    phase = phase_of(servers.run, config, servers.tables)
    if phase is None:
        yield config
        return
    with servers.running(phase.models, computes=phase.computes) as urls:
        yield config.model_copy(update={f"{role}_url": addresses for role, addresses in urls.items()})


def phase_of(run: Run, config: StageConfig, served: Collection[Role]) -> Phase | None:
    """Return what a stage needs; None if it needs no server and no GPU.

    Args:
        served: the roles that have a server.
    """
    if isinstance(config, TrainConfig):
        return Phase({}, computes=1)
    models: dict[Role, tuple[str, list[str]]] = {}
    judge: str | None = None
    if isinstance(config, RolloutConfig):
        models = {"agent": (given_model(run, config.agent), config.agent_url), "sim": _human(config, served)}
        judge = config.chooser if config.best_of else None
    elif isinstance(config, TrainOnlineConfig):
        human = _human(config, served)
        needed = "sim" in served and not human[1] and has_model(human[0])
        return Phase({"sim": human[0]} if needed else {}, computes=config.devices or 1)
    elif isinstance(config, RankConfig):
        judge = config.judge
        if config.replies is None:
            models = {"agent": (_sampler(run, config), config.agent_url)}
        if judge == LOOKAHEAD:
            models["sim"] = (config.sim or SCRIPTED, config.sim_url)
    else:
        return None
    if judge == "llm":
        models["judge"] = (str(config.judge_model), config.judge_url)
    here = {role: model for role, (model, urls) in models.items() if not urls and has_model(model)}
    return Phase(
        {role: model for role, model in here.items() if role in served},
        computes=int(judge in (*CRITIC_JUDGES, LOOKAHEAD) or any(role not in served for role in here)),
    )


def _human(config: RolloutConfig | TrainOnlineConfig, served: Collection[Role]) -> tuple[str, list[str]]:
    """Return the model that plays the human, `scripted` if none does, and its addresses.

    Raises:
        UsageError: several models play it, and one server would have to serve them.
    """
    models = [sim for sim in config.sims if sim != SCRIPTED]
    if len(models) > 1 and "sim" in served and not config.sim_url:
        raise UsageError(
            f"[servers.sim] serves one model, and {len(models)} play the human.",
            where="[servers.sim]",
            fix="start servers of them, and name their addresses: --sim-url URL",
        )
    return (models or [SCRIPTED])[0], config.sim_url


def _sampler(run: Run, config: RankConfig) -> str:
    """Return the model that replies in a ranking."""
    if config.agent is not None:
        return given_model(run, config.agent)
    return agent_of(run, run.find("rollouts", config.rollouts, needed_by="rank"), "agent")
