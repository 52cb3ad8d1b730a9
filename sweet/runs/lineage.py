"""What was made from what, and whether it still stands.

An artifact is stale when its own file is not what was finished, when an input is not what it was when it was used, is
stale itself or is gone, or when a newer one with another content stands in an input's place. A run holds several
artifacts of one kind side by side (dialogues on training tasks, dialogues on unseen ones, repeats with another seed,
scores by another scorer, candidates by another judge), so newer alone is not in place of: both must go back to rollouts
of the same agent on the same data by the same settings, to scores by the same scorer, to the same kind of critic and to
candidates by the same judge, of the same replies where these were given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from sweet.runs.manifest import Artifact, Manifest

SumOf = Callable[[Artifact], str | None]
"""sha256 of an artifact's content as it is now, None where it is gone."""

_PLAYED = (
    *("task", "tasks", "split", "agent", "sim", "prompts", "prompts_digest", "recipe"),
    *("max_turns", "temperature", "top_p", "max_tokens", "token_limit", "seed"),
)
"""What rollouts of one role share, as their `meta` or their attempt's configuration tells it: all that decides a
dialogue. More tasks, or more samples of each, take the place of fewer."""


def ancestors(manifest: Manifest, artifact: Artifact) -> Iterator[Artifact]:
    """The artifact, its inputs, their inputs, … nearest first, each once. Inputs that are gone are passed over."""
    waiting, seen = [artifact], {artifact.id}
    while waiting:
        current = waiting.pop(0)
        yield current
        for ref in current.inputs:
            found = manifest.artifact(ref.id)
            if found is not None and found.id not in seen:
                seen.add(found.id)
                waiting.append(found)


def input_of(manifest: Manifest, artifact: Artifact, kind: str) -> Artifact | None:
    """The nearest ancestor of a kind, the artifact itself included."""
    return next((found for found in ancestors(manifest, artifact) if found.kind == kind), None)


def role(manifest: Manifest, artifact: Artifact) -> tuple[str, str]:
    """Two artifacts of one role stand in each other's place."""
    root = input_of(manifest, artifact, "rollouts")
    scores = input_of(manifest, artifact, "scores")
    played = {}
    if root is not None:
        attempt = manifest.attempt(root.attempt)
        settings = {**(attempt.config if attempt else {}), **root.meta}
        played = {key: settings.get(key) for key in _PLAYED}
    scorer = scores.meta.get("scorer") if scores is not None else None
    critic = input_of(manifest, artifact, "critic")
    candidates = input_of(manifest, artifact, "candidates")
    learned = [critic.meta.get(key) if critic else None for key in ("variant", "recipe", "target", "normalize")]
    judged = [candidates.meta.get(key) if candidates else None for key in ("judge", "replies")]
    return artifact.kind, json.dumps([played, scorer, learned, judged], sort_keys=True)


def newer_in_place(manifest: Manifest, artifact: Artifact) -> Artifact | None:
    """The newest finished artifact of the same role, if it is another one and of another content."""
    place = role(manifest, artifact)
    same = [found for found in manifest.of_kind(artifact.kind, "done") if role(manifest, found) == place]
    return same[-1] if same and artifact.finished and same[-1].sha256 != artifact.sha256 else None


class Staleness:
    """Answers for one manifest; each artifact's content is looked at once."""

    def __init__(self, manifest: Manifest, sum_of: SumOf) -> None:
        self._manifest = manifest
        self._sum_of = sum_of
        self._sums: dict[str, str | None] = {}
        self._reasons: dict[str, str | None] = {}

    def __call__(self, artifact: Artifact) -> str | None:
        """Why an artifact is stale, in one clause; None where it is not, or is not finished."""
        if artifact.id not in self._reasons:
            self._reasons[artifact.id] = None  # a lineage that a hand has bent into a ring ends here
            self._reasons[artifact.id] = self._reason(artifact)
        return self._reasons[artifact.id]

    def _reason(self, artifact: Artifact) -> str | None:
        if artifact.status != "done":
            return None
        now = self._sum(artifact)
        if now is None:
            return f"{artifact.path} is not there any more"
        if now != artifact.sha256:
            return f"{artifact.path} was changed since it was finished"
        for ref in artifact.inputs:
            found = self._manifest.artifact(ref.id)
            if found is None:
                return f"its input {ref.id} is not in the run any more"
            if found.status != "done":
                return f"its input {ref.id} is being made anew"
            if self._sum(found) != ref.sha256:
                return f"its input {ref.id} was changed since"
            if self(found) is not None:
                return f"its input {ref.id} is stale"
        for ref in artifact.inputs:
            found = self._manifest.artifact(ref.id)
            newer = newer_in_place(self._manifest, found) if found else None
            if newer is not None and newer.finished and artifact.finished and newer.finished > artifact.finished:
                return f"{newer.id} is newer than its input {ref.id}"
        return None

    def _sum(self, artifact: Artifact) -> str | None:
        if artifact.id not in self._sums:
            self._sums[artifact.id] = self._sum_of(artifact)
        return self._sums[artifact.id]
