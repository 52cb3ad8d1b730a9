"""The actors of a run by the names that are recorded of them.

What spoke in dialogues and what a training started from is recorded as it was named then: an actor of the run by the
directory where it lay. The run may have been moved since, so the end of the path tells it. An actor of another run may
end alike; one that was begun after its name was recorded is not meant.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path, PurePosixPath

from pydantic import JsonValue

from sweet.errors import UsageError
from sweet.hints import option
from sweet.llm.scripted import SCRIPTED
from sweet.runs.manifest import Artifact, Manifest
from sweet.runs.run import Run
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.kind import system_prompt
from sweet.tasks.markers import MAX_TURNS
from sweet.tasks.registry import task_kind

IMPORTED = "imported"
"""What stands in place of the names of agent, human and scorer where dialogues and rewards came from elsewhere."""

NO_MODEL = (SCRIPTED, IMPORTED)
"""What stands in the meta of rollouts in place of the agent's model where there was none, or it is not known."""


def own_actor(manifest: Manifest, name: JsonValue, recorded: datetime) -> Artifact | None:
    """The actor of the run that a name recorded at that time means; None where it means another model."""
    if not isinstance(name, str):
        return None
    named = PurePosixPath(name.replace("\\", "/")).parts
    for actor in manifest.of_kind("actor"):
        parts = PurePosixPath(actor.path).parts
        if named[-len(parts) :] == parts and actor.created < recorded:
            return actor
    return None


def agent_name(manifest: Manifest, rollouts: Artifact) -> str | None:
    """What spoke in dialogues, an actor of the run by its id; None where it is not recorded, or these are none."""
    agent = RolloutsMeta.of(rollouts).agent if rollouts.kind == "rollouts" else None
    actor = None if agent is None else own_actor(manifest, agent, rollouts.created)
    return agent if actor is None else actor.id


def recorded_model(run: Run, artifact: Artifact, key: str) -> str:
    """The model that an artifact's meta names, an actor of the run as it lies there now; empty where it names none."""
    name = str(artifact.meta.get(key) or "")
    if not name or Path(name).expanduser().is_dir():
        return name
    actor = own_actor(run.manifest(), name, artifact.created)
    return name if actor is None else str(run.file(actor))


def agent_system(run: Run, rollouts: Artifact) -> str:
    """The system prompt under which the agent of these rollouts spoke: `--prompts` leaves it with them."""
    meta = RolloutsMeta.of(rollouts)
    return meta.agent_system or system_prompt(task_kind(run.manifest().task), meta.max_turns or MAX_TURNS)


def agent_of(run: Run, rollouts: Artifact, named_by: str) -> str:
    """The model that spoke in these rollouts, where it lies now.

    Raises:
        UsageError: it was no model, or is not known; the option `named_by` names one.
    """
    agent = recorded_model(run, rollouts, "agent") or "micro"
    if agent in NO_MODEL:
        raise UsageError(
            f"The agent of these dialogues was {agent}, and there is no model to go on from.",
            where=rollouts.id,
            fix=option(named_by, "MODEL"),
        )
    return agent
