"""Artifacts, attempts and settings of a run, as facts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pydantic import JsonValue

from sweet.inspection.status import command_of, current_settings, default_settings
from sweet.inspection.status import report as status
from sweet.report.schema import ArtifactFact, AttemptFact, Link, words
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run
from sweet.stages.artifacts import own_actor

RUN = "RUN"
"""How commands and agents name the run, wherever it lies."""
MODELS = ("agent", "model", "reference")
"""Settings that may name an actor of the run."""


class Names:
    """Agents by name: an actor of the run is called by its id."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def actor(self, rollouts: Artifact) -> Artifact | None:
        """The actor of the run that spoke in dialogues."""
        return self.meant(rollouts.meta.get("agent"), rollouts.created)

    def meant(self, name: JsonValue, recorded: datetime) -> Artifact | None:
        """The actor of the run that a name recorded at that time means."""
        return own_actor(self._manifest, name, recorded)

    def agent(self, rollouts: Artifact | None) -> str:
        return "" if rollouts is None else self._name(rollouts, "agent")

    def came_from(self, actor: Artifact) -> list[str]:
        """What an actor was trained from, what that was trained from where it is an actor of the run, and so on."""
        found = [self._name(actor, "base")]
        while (base := self.meant(actor.meta.get("base"), actor.created)) is not None:
            found.append(self._name(base, "base"))
            actor = base
        return found

    def _name(self, artifact: Artifact, key: str) -> str:
        name = artifact.meta.get(key)
        actor = self.meant(name, artifact.created)
        return words(name) if actor is None else actor.id

    def dataset(self, rollouts: Artifact | None) -> str:
        parts = [words(rollouts.meta.get(key)) for key in ("tasks", "split")] if rollouts else []
        return " / ".join(filter(None, parts))


def artifact_facts(run: Run, manifest: Manifest) -> list[ArtifactFact]:
    sums = {artifact.id: artifact.sha256 for artifact in manifest.artifacts}
    return [
        ArtifactFact(**told.model_dump(), sha256=sums[told.id]) for told in status(run).artifacts if told.id in sums
    ]


def links(manifest: Manifest, names: Names) -> Iterator[Link]:
    """What was made from what, and which actor spoke in which rollouts. Inputs that are gone are left out."""
    for artifact in manifest.artifacts:
        for ref in artifact.inputs:
            if manifest.artifact(ref.id) is not None:
                yield Link(source=ref.id, target=artifact.id)
        actor = names.actor(artifact) if artifact.kind == "rollouts" else None
        if actor is not None:
            yield Link(source=actor.id, target=artifact.id, played=True)


def attempt_fact(attempt: Attempt, names: Names) -> AttemptFact:
    config = _portable(attempt, names)
    defaults = default_settings(attempt.stage)
    changed = {key: value for key, value in config.items() if defaults is None or value != defaults.get(key)}
    command = None
    if defaults is not None:
        command = command_of(attempt.model_copy(update={"config": config}), RUN, resume=False)
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
    """Settings in which an actor of the run is named from RUN on, wherever the run lies."""
    config = current_settings(attempt)
    found = {name: names.meant(config.get(name), attempt.started) for name in MODELS}
    return config | {name: f"{RUN}/{actor.path}" for name, actor in found.items() if actor is not None}


def _flat(environment: dict[str, JsonValue]) -> Iterator[tuple[str, str]]:
    for key, value in environment.items():
        if isinstance(value, dict):
            yield from ((inner, words(version)) for inner, version in value.items())
        else:
            yield key, words(value)


def method(manifest: Manifest) -> str:
    """What was learned and how, in a few words."""
    found = []
    for kind, key in (("critic", "variant"), ("actor", "method")):
        made = manifest.of_kind(kind, "done")
        if made and made[-1].meta.get(key) is not None:
            recipe = words(made[-1].meta.get("recipe"))
            found.append(f"{kind} {words(made[-1].meta[key])}" + (f" (recipe {recipe})" if recipe else ""))
    return ", ".join(found)
