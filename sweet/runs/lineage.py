"""Which artifacts were made from which, and which are stale.

An artifact is stale if its own file has changed since it was finished; if an input has changed since it was used, is
stale itself or no longer exists; or if a newer artifact with another content replaces an input. A run holds several
artifacts of one kind (dialogues on training tasks and on unseen ones, repeats with another seed, scores by another
scorer, candidates by another judge), so a newer artifact replaces an older one only if both have the same role: they go
back to rollouts of the same agent on the same data with the same settings, to scores by the same scorer, to the same
kind of critic, and to candidates by the same judge, of the same replies if these were given. Rollouts that an attempt
played and learned from are replaced by none: no other dialogues are those of its actor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from sweet.errors import InputError
from sweet.runs.manifest import Artifact, Kind, Manifest

DigestOf = Callable[[Artifact], str | None]
"""Returns what identifies an artifact's current content, its sha256 where it may equal a recorded one; None if it does
not exist."""

_PLAYED = (
    *("task", "tasks", "split", "agent", "sim", "prompts", "prompts_digest", "protocol"),
    *("personas_digest", "humans_by"),
    *("max_turns", "temperature", "top_p", "max_tokens", "token_limit", "seed"),
    *("max_thought_tokens", "effort", "thoughts"),
    *("best_of", "judge", "judge_model", "judge_prompt", "reference", "reference_context", "max_length"),
    "turn_tokens",
)
"""Settings, in meta or the attempt's configuration, that rollouts of one role share: all that decide a dialogue. More
tasks, or more samples of each, replace fewer."""


def ancestors(manifest: Manifest, artifact: Artifact) -> Iterator[Artifact]:
    """Yield the artifact, its inputs, their inputs, … nearest first, each once. Missing inputs are skipped."""
    waiting, seen = [artifact], {artifact.id}
    while waiting:
        current = waiting.pop(0)
        yield current
        for ref in current.inputs:
            source = manifest.artifact(ref.id)
            if source is not None and source.id not in seen:
                seen.add(source.id)
                waiting.append(source)


def input_of(manifest: Manifest, artifact: Artifact, kind: str) -> Artifact | None:
    """Return the nearest ancestor of a kind, which may be the artifact itself."""
    return next((source for source in ancestors(manifest, artifact) if source.kind == kind), None)


def made_of(manifest: Manifest, kind: Kind, rollouts: Artifact, status: str = "done") -> Iterator[Artifact]:
    """Yield the artifacts of a kind and a status whose nearest dialogues are these, the newest first."""
    for artifact in reversed(manifest.of_kind(kind, status)):
        nearest = input_of(manifest, artifact, "rollouts")
        if nearest is not None and nearest.id == rollouts.id:
            yield artifact


def role(manifest: Manifest, artifact: Artifact) -> tuple[str, str]:
    """Return the role of an artifact: a newer artifact of the same role replaces it."""
    nearest = {ancestor.kind: ancestor for ancestor in reversed([*ancestors(manifest, artifact)])}
    root, scores, critic, candidates = (nearest.get(kind) for kind in ("rollouts", "scores", "critic", "candidates"))
    played = {}
    if root is not None:
        attempt = manifest.attempt(root.attempt)
        settings = {**(attempt.config if attempt else {}), **root.meta}
        played = {key: settings.get(key) for key in _PLAYED}
        if attempt is not None and any(name.startswith("actor-") for name in attempt.outputs):
            played["rollouts"] = root.id
    scorer = scores.meta.get("scorer") if scores is not None else None
    learned = [critic.meta.get(key) if critic else None for key in ("variant", "protocol", "target", "normalize")]
    judged = [candidates.meta.get(key) if candidates else None for key in ("judge", "replies")]
    return artifact.kind, json.dumps([played, scorer, learned, judged], sort_keys=True)


class Staleness:
    """Staleness of the artifacts of one manifest. The content and the role of each are determined once."""

    def __init__(self, manifest: Manifest, digest_of: DigestOf) -> None:
        self._manifest = manifest
        self._digest_of = digest_of
        self._order = {artifact.id: number for number, artifact in enumerate(manifest.artifacts)}
        self._roles: dict[str, tuple[str, str]] = {}
        self._digests: dict[str, str | None] = {}
        self._reasons: dict[str, str | None] = {}

    def __call__(self, artifact: Artifact) -> str | None:
        """Return why an artifact is stale, in one clause; None if it is not, or is not finished."""
        if artifact.id not in self._reasons:
            self._reasons[artifact.id] = None  # ends the recursion if an edited manifest has a cycle
            self._reasons[artifact.id] = self._reason(artifact)
        return self._reasons[artifact.id]

    def _reason(self, artifact: Artifact) -> str | None:
        try:
            return self._change_since(artifact)
        except InputError as error:  # what is in its place is not a file, or a link
            return f"{error.path}: {error.what.removesuffix('.')}"

    def _change_since(self, artifact: Artifact) -> str | None:
        if artifact.status != "done":
            return None
        now = self._digest(artifact)
        if now is None:
            return f"{artifact.path} no longer exists"
        if now != artifact.sha256:
            return f"{artifact.path} was changed since it was finished"
        for ref in artifact.inputs:
            source = self._manifest.artifact(ref.id)
            if source is None:
                return f"its input {ref.id} is no longer in the run"
            if source.status != "done":
                return f"its input {ref.id} is being made again"
            if self._digest(source) != ref.sha256:
                return f"its input {ref.id} was changed since"
            if self(source) is not None:
                return f"its input {ref.id} is stale"
        for ref in artifact.inputs:
            source = self._manifest.artifact(ref.id)
            newer = self._replacement(source) if source else None
            if newer is not None and self._order[newer.id] > self._order[artifact.id]:
                return f"{newer.id} is newer than its input {ref.id}"
        return None

    def _digest(self, artifact: Artifact) -> str | None:
        if artifact.id not in self._digests:
            self._digests[artifact.id] = self._digest_of(artifact)
        return self._digests[artifact.id]

    def _replacement(self, artifact: Artifact) -> Artifact | None:
        """Return the newest finished artifact of the same role, if its content is different."""
        done = self._manifest.of_kind(artifact.kind, "done")
        same = [other for other in done if self._role(other) == self._role(artifact)]
        return same[-1] if same and same[-1].sha256 != artifact.sha256 else None

    def _role(self, artifact: Artifact) -> tuple[str, str]:
        if artifact.id not in self._roles:
            self._roles[artifact.id] = role(self._manifest, artifact)
        return self._roles[artifact.id]
