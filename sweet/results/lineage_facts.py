"""Facts about the attempts, settings and agents of a run."""

from __future__ import annotations

from collections.abc import Iterator

from sweet.inspection.status_report import AttemptStatus
from sweet.json_value import JsonValue
from sweet.results.facts import AttemptFact, words
from sweet.runs.manifest import Attempt, Manifest
from sweet.runs.stages import stage_named
from sweet.stages.artifacts import own_actor

RUN = "RUN"
"""Stands for the run's path in commands and names of agents."""
MODELS = ("agent", "model", "reference")
"""Settings whose value may be an actor of the run."""


def attempt_fact(status: AttemptStatus, attempt: Attempt, manifest: Manifest) -> AttemptFact:
    config = _portable(attempt, manifest)
    stage = stage_named(attempt.stage)
    defaults = None if stage is None else stage.config.default_settings()
    changed = {key: value for key, value in config.items() if defaults is None or value != defaults.get(key)}
    command = None if stage is None else stage.command(config, RUN)
    return AttemptFact(
        **status.model_dump(),
        changed=changed,
        defaults={key: value for key, value in config.items() if key not in changed},
        environment=dict(_flat(attempt.environment)),
        command=command,
    )


def _portable(attempt: Attempt, manifest: Manifest) -> dict[str, JsonValue]:
    """Return the settings with the actors of the run as RUN/…, independent of the run's path."""
    config = attempt.config
    actors = {name: own_actor(manifest, config.get(name), attempt) for name in MODELS}
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
    for kind, key in (("critic", "variant"), ("actor", "algorithm")):
        made = manifest.of_kind(kind, "done")
        if made and made[-1].meta.get(key) is not None:
            protocol = words(made[-1].meta.get("protocol"))
            parts.append(f"{kind} {words(made[-1].meta[key])}" + (f" (protocol {protocol})" if protocol else ""))
    return ", ".join(parts)
