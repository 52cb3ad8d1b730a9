"""Facts about the artifacts, attempts and settings of a run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sweet.inspection.status import report as status
from sweet.json_value import JsonValue
from sweet.results.facts import ArtifactFact, AttemptFact, words
from sweet.runs.commands import command_of, default_settings
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run
from sweet.stages.artifacts import own_actor

RUN = "RUN"
"""Stands for the run's path in commands and names of agents."""
MODELS = ("agent", "model", "reference")
"""Settings whose value may be an actor of the run."""


class Names:
    """Resolves the names of agents: an actor of the run is named by its id."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def actor(self, rollouts: Artifact) -> Artifact | None:
        """Return the actor of the run that played the dialogues; None for another agent."""
        return self.resolve_actor(rollouts.meta.get("agent"), rollouts.created)

    def resolve_actor(self, name: JsonValue, recorded: datetime) -> Artifact | None:
        """Return the actor of the run that a name recorded at that time refers to."""
        return own_actor(self._manifest, name, recorded)

    def agent(self, rollouts: Artifact | None) -> str:
        return "" if rollouts is None else self._name(rollouts, "agent")

    def ancestors(self, actor: Artifact) -> list[str]:
        """Return the base of an actor, the base of that one if it is an actor of the run, and so on."""
        names = [self._name(actor, "base")]
        while (base := self.resolve_actor(actor.meta.get("base"), actor.created)) is not None:
            names.append(self._name(base, "base"))
            actor = base
        return names

    def _name(self, artifact: Artifact, key: str) -> str:
        name = artifact.meta.get(key)
        actor = self.resolve_actor(name, artifact.created)
        return words(name) if actor is None else actor.id

    def dataset(self, rollouts: Artifact | None) -> str:
        parts = [words(rollouts.meta.get(key)) for key in ("tasks", "split")] if rollouts else []
        return " / ".join(filter(None, parts))


def artifact_facts(run: Run, manifest: Manifest) -> list[ArtifactFact]:
    digests = {artifact.id: artifact.sha256 for artifact in manifest.artifacts}
    return [
        ArtifactFact(**one.model_dump(), sha256=digests[one.id]) for one in status(run).artifacts if one.id in digests
    ]


def attempt_fact(attempt: Attempt, names: Names) -> AttemptFact:
    config = _portable(attempt, names)
    defaults = default_settings(attempt.stage)
    changed = {key: value for key, value in config.items() if defaults is None or value != defaults.get(key)}
    command = None
    if defaults is not None:
        command = command_of(attempt.model_copy(update={"config": config}), RUN)
    end = attempt.finished
    return AttemptFact(
        id=attempt.id,
        stage=attempt.stage,
        status=attempt.status,
        started=attempt.started,
        seconds=None if end is None else round((end - attempt.started).total_seconds(), 1),
        outputs=list(attempt.outputs),
        changed=changed,
        defaults={key: value for key, value in config.items() if key not in changed},
        environment=dict(_flat(attempt.environment)),
        command=command,
        error=attempt.error,
    )


def _portable(attempt: Attempt, names: Names) -> dict[str, JsonValue]:
    """Return the settings with the actors of the run as RUN/…, independent of the run's path."""
    config = attempt.config
    actors = {name: names.resolve_actor(config.get(name), attempt.started) for name in MODELS}
    return config | {name: f"{RUN}/{actor.path}" for name, actor in actors.items() if actor is not None}


def _flat(environment: dict[str, JsonValue]) -> Iterator[tuple[str, str]]:
    for key, value in environment.items():
        if isinstance(value, dict):
            yield from ((inner, words(version)) for inner, version in value.items())
        else:
            yield key, words(value)


def method(manifest: Manifest) -> str:
    """Describe the trained critic and actor in a few words."""
    parts = []
    for kind, key in (("critic", "variant"), ("actor", "method")):
        made = manifest.of_kind(kind, "done")
        if made and made[-1].meta.get(key) is not None:
            protocol = words(made[-1].meta.get("protocol"))
            parts.append(f"{kind} {words(made[-1].meta[key])}" + (f" (protocol {protocol})" if protocol else ""))
    return ", ".join(parts)
