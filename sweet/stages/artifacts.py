"""The actors of a run, found by the names that were recorded of them.

The model that spoke in dialogues, or that a training started from, is recorded under its name of that time: for an
actor of a run its id or the path of its directory. The run may have been moved since, so the end of the path
identifies the actor. Two cases are excluded: an actor that was started after the name was recorded, and a path into
another run that still exists (a run and its copies have the same time of creation).
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from sweet.errors import InputError, UsageError
from sweet.files import write_whole
from sweet.hints import option
from sweet.json_value import JsonValue
from sweet.llm.scripted import has_model
from sweet.regular import read_regular
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run
from sweet.runs.store import LARGEST
from sweet.runs.store import NAME as MANIFEST
from sweet.stages.base import digest_of
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.kind import TaskKind, system_prompt
from sweet.tasks.markers import MAX_TURNS
from sweet.tasks.registry import task_kind

IMPORTED = "imported"
"""Name of agent, human and scorer in meta if dialogues and rewards were imported."""

PROMPTS = "prompts-"
"""Beginning of the name of the folder of prompts in that of an actor; the kind of task follows."""
AGENT_TEXT = "agent.txt"

PERSON = "person"
"""A person who played the agent or the human, in the meta of rollouts: person:ada."""


def person(name: str) -> str:
    """Return how a person is recorded in the meta of rollouts."""
    return f"{PERSON}:{name}"


def is_model(name: str) -> bool:
    """Return whether the agent in the meta of rollouts is a model that is known: not rules, not imported, no person."""
    return name != IMPORTED and name.partition(":")[0] != PERSON and has_model(name)


def own_actor(manifest: Manifest, name: JsonValue, record: Artifact | Attempt) -> Artifact | None:
    """Return the actor of the run that a recorded name means; None where it means another model.

    Args:
        record: the artifact or attempt in which the name was recorded.
    """
    if not isinstance(name, str):
        return None
    named = PurePosixPath(name.replace("\\", "/"))
    for actor in manifest.of_kind("actor"):
        parts = PurePosixPath(actor.path).parts
        is_path = named.parts[-len(parts) :] == parts
        if not (is_path or name == actor.id) or manifest.position(actor) >= manifest.position(record):
            continue
        if is_path and named.is_absolute() and _is_another_run(Path(*named.parts[: -len(parts)]), manifest.created):
            return None
        return actor
    return None


def _is_another_run(folder: Path, created: datetime) -> bool:
    """Return whether a folder is a run that was created at another time; False where it cannot be read."""
    try:
        other = json.loads(read_regular(folder / MANIFEST, LARGEST))["created"]
        return datetime.fromisoformat(other) != created
    except (OSError, ValueError, KeyError, TypeError, RecursionError, InputError):
        return False


def actor_of(manifest: Manifest, rollouts: Artifact) -> Artifact | None:
    """Return the actor of the run that played dialogues; None for another agent."""
    return own_actor(manifest, rollouts.meta.get("agent"), rollouts)


def agent_name(manifest: Manifest, rollouts: Artifact) -> str | None:
    """Return the agent of dialogues, an actor of the run by its id; None if it is not recorded."""
    if rollouts.kind != "rollouts":
        return None
    actor = actor_of(manifest, rollouts)
    return RolloutsMeta.of(rollouts).agent if actor is None else actor.id


def given_model(run: Run, name: str) -> str:
    """Return the model that an option names: for the id of a finished actor of the run its current path."""
    actor = run.manifest().artifact(name)
    return str(run.file(actor)) if actor is not None and (actor.kind, actor.status) == ("actor", "done") else name


def recorded_model(run: Run, artifact: Artifact, key: str) -> str:
    """Return the model that an artifact's meta names, an actor of the run by its current path; empty without one."""
    name = str(artifact.meta.get(key) or "")
    if not name:
        return name
    manifest = run.manifest()
    if manifest.artifact(name) is None and Path(name).expanduser().is_dir():
        return name
    actor = own_actor(manifest, name, artifact)
    return name if actor is None else str(run.file(actor))


def agent_system(run: Run, rollouts: Artifact) -> str:
    """Return the system prompt of the agent of these rollouts, which is recorded if `--prompts` was given. It is that
    of every dialogue that has none of its own (`Trajectory.agent_system`)."""
    meta = RolloutsMeta.of(rollouts)
    return meta.agent_system or system_prompt(task_kind(run.manifest().task), meta.max_turns or MAX_TURNS)


def prompts_of(kind: TaskKind) -> str:
    """Return the name of the folder of an actor with the prompts under which it learned tasks of a kind."""
    return f"{PROMPTS}{quote(kind.name, safe='')}"


def write_prompt(actor: Path, kind: TaskKind, text: str | None = None) -> None:
    """Write the system prompt under which an actor learned into its folder, as a folder for `--prompts`.

    Args:
        text: None for that of the kind.
    """
    write_whole(actor / prompts_of(kind) / AGENT_TEXT, f"{text or kind.agent_system()}\n".encode())


def given_prompts(kind: TaskKind, folder: Path, max_turns: int) -> dict[str, str]:
    """Return the keys of the rollouts' meta that record prompts given in a folder.

    Args:
        kind: with these prompts.
        max_turns: maximum number of the agent's turns.
    """
    texts = [file.read_text("utf-8") for file in sorted(folder.glob("*.txt"))]
    return {"agent_system": system_prompt(kind, max_turns), "prompts_digest": digest_of(texts)}


def agent_of(run: Run, rollouts: Artifact, named_by: str) -> str:
    """Return the model of the agent of these rollouts, by its current path.

    Args:
        named_by: the option that can name another model.

    Raises:
        UsageError: the agent was no model, or is not known.
    """
    agent = recorded_model(run, rollouts, "agent") or "micro"
    if not is_model(agent):
        raise UsageError(
            f"The agent of these dialogues was {agent}, which is no model to continue from.",
            where=rollouts.id,
            fix=option(named_by, "MODEL"),
        )
    return agent
