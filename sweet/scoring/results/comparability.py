"""Find what makes a comparison of two evaluations unfair: every difference between the sides other than the agent.

The manifests record how the dialogues were played and scored; the rows give the numbers of tasks, dialogues and invalid
tasks. The digests of the data sets show whether tasks with the same id are the same tasks; the dialogues are read only
if the digests differ. Another scorer, or another kind of task, is an error and not a warning: its rewards have another
meaning.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sweet.errors import UsageError
from sweet.llm.scripted import SCRIPTED
from sweet.render.page import PLACEHOLDER, RenderSettings
from sweet.render.window import window_name
from sweet.scoring.results.evaluation import Evaluation, Values
from sweet.scoring.results.metrics import Caveat
from sweet.stages.base import digest_of
from sweet.stages.meta import RolloutsMeta
from sweet.stages.unseen_tasks import tasks_of

_UNKNOWN = object()
"""A setting that the manifest does not record."""

_NAMED = 3
"""Number of tasks that a warning names."""

_PLAYED = {
    "protocol": "protocol",
    "max_turns": "turn limit",
    "temperature": "temperature",
    "top_p": "nucleus (top-p)",
    "max_tokens": "tokens per reply",
    "max_thought_tokens": "tokens per thought",
    "effort": "effort of thinking",
    "thoughts": "earlier thoughts in the history",
    "token_limit": "tokens per dialogue",
    "seed": "seed",
}
"""Settings of the dialogues that must be equal, with their names in messages."""

_LOOKS = {"window": "window in which the human saw pages", "pictures": "images that the human saw"}
"""The same of pages."""


def check_comparable(baseline: Evaluation, *, kind: str, scorer: str | None, fix: str, allow: bool) -> None:
    """Refuse a baseline whose rewards have another meaning than those it is compared with.

    Args:
        kind, scorer: of the other side, which may not be scored yet.
        fix: the command that scores one side the same way as the other.
        allow: accept different scorers and kinds; `unfairness` then warns.

    Raises:
        UsageError: kinds or scorers differ.
    """
    if allow:
        return
    if baseline.manifest.task != kind:
        raise UsageError(
            f"The baseline has tasks of the kind {baseline.manifest.task}, the other side of the kind {kind}.",
            where=baseline.run.path,
            fix="compare runs of one kind; --allow-different compares them anyway",
        )
    if baseline.scorer != scorer:
        raise UsageError(
            f"The baseline's {baseline.scores.id} was scored by {baseline.scorer}, the other side is "
            f"scored by {scorer}. (--allow-different compares them anyway.)",
            where=baseline.run.file(baseline.scores),
            fix=fix,
        )


def score_again(evaluation: Evaluation, options: str) -> str:
    """Return the command that scores the same dialogues with these options of `sweet eval`."""
    chosen = [] if evaluation.rollouts is None else ["--from", evaluation.rollouts.id]
    return f"{shlex.join(['sweet', 'eval', str(evaluation.run.path), *chosen])} {options}".rstrip()


def scorer_options(evaluation: Evaluation) -> str | None:
    """Return the options of `sweet eval` that select the scorer of an evaluation; None if it was scored elsewhere."""
    attempt = evaluation.scored_by
    if attempt is None or attempt.stage != "eval":
        return None
    options = {name: attempt.config.get(name) for name in sorted(evaluation.kind.scorer_options)}
    for name in ("window", "pictures"):  # by default those of the dialogues, which are not the other side's
        if name in options and (recorded := evaluation.scores.meta.get(name)) is not None:
            options[name] = str(recorded).partition("@")[0]
    return shlex.join(word for key, value in options.items() if value is not None for word in (f"--{key}", str(value)))


def unfairness(a: Evaluation, b: Evaluation, values: tuple[Values, Values], shared: Sequence[str]) -> list[Caveat]:
    """Return everything that makes the comparison unfair, the most serious first."""
    return [*_scoring(a, b), *_tasks(a, b, values, shared), *_playing(a, b), *_state(a, b)]


def _scoring(a: Evaluation, b: Evaluation) -> Iterator[Caveat]:
    yield from _differs("kind", "kind of task", a.manifest.task, b.manifest.task)
    yield from _differs("scorer", "scorer", a.scorer, b.scorer)
    ours, theirs = a.scores.meta, b.scores.meta
    named = {"scorer", "rollouts", "similarity", "window", "pictures"}  # the scorer's name has the last three
    for key in sorted((ours.keys() & theirs.keys()) - named):
        yield from _differs(key, "sandbox" if key == "sandbox" else f"the scorer's {key}", ours[key], theirs[key])


def _tasks(a: Evaluation, b: Evaluation, values: tuple[Values, Values], shared: Sequence[str]) -> Iterator[Caveat]:
    digests = [side.played.get("tasks_digest") for side in (a, b)]
    if None in digests or digests[0] != digests[1]:
        for key, words in (("tasks", "data set"), ("split", "split")):
            yield from _differs(key, words, *(side.played.get(key, _UNKNOWN) for side in (a, b)))
        changed = _changed(a, b, shared)
        if changed:
            more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
            text = f"Tasks with the same id differ: {', '.join(changed[:_NAMED])}{more}."
            yield Caveat(about="task_content", text=text, a=len(changed), b=len(changed))
    alone = [len(side.ids.keys() - set(shared)) for side in values]
    if any(alone):
        text = f"Tasks of one side only: {_sides(*alone)}. They are excluded."
        yield Caveat(about="tasks_not_shared", text=text, a=alone[0], b=alone[1])
    invalid = [len(side.invalid) for side in values]
    if any(invalid):
        text = f"Invalid tasks, which count in no rate: {_sides(*invalid)}."
        yield Caveat(about="invalid_tasks", text=text, a=invalid[0], b=invalid[1])
    counts = [sorted({len(side.ids[task]) for task in shared}) for side in values]
    if counts[0] != counts[1]:
        ranges = ["–".join(str(end) for end in dict.fromkeys((row[0], row[-1]))) for row in counts]
        yield Caveat(about="samples", text=f"Dialogues per task: {_sides(*ranges)}.", a=ranges[0], b=ranges[1])


def _playing(a: Evaluation, b: Evaluation) -> Iterator[Caveat]:
    unknown = [name for name, side in (("A", a), ("B", b)) if side.played_by is None]
    if unknown:
        whose = " and ".join(unknown)
        text = f"The run does not record how the dialogues of {whose} were played (human, turns, temperature, …)."
        yield Caveat(about="played", text=text, a=a.played_by is not None, b=b.played_by is not None)
        return
    yield from _differs("sim", "simulated human", _human(a), _human(b))
    yield from _differs("human", "what the human knows the tasks by", *(s.played.get("human", "code") for s in (a, b)))
    yield from _differs("human_tries", "tries of a human whose reply is withheld", _tries(a), _tries(b))
    ours, theirs = a.played, b.played
    prompts = [side.get("prompts_digest", "packaged") for side in (ours, theirs)]
    yield from _differs("prompts", "prompts", *prompts)
    if any(side.get(key) for side in (ours, theirs) for key in _LOOKS):  # on tasks with pages
        for key, value in (("window", window_name(RenderSettings())), ("pictures", PLACEHOLDER)):
            yield from _differs(key, _LOOKS[key], *(side.get(key) or value for side in (ours, theirs)))
    yield from _differs("best_of", "choice of replies", _choice(ours), _choice(theirs))
    for key, words in _PLAYED.items():
        yield from _differs(key, words, ours.get(key, _UNKNOWN), theirs.get(key, _UNKNOWN))


def _state(a: Evaluation, b: Evaluation) -> Iterator[Caveat]:
    stale = [side.run.stale(side.scores) for side in (a, b)]
    for name, side, why in zip("AB", (a, b), stale, strict=True):
        if why is not None:
            text = f"{side.scores.id} of {name} is stale: {why}."
            yield Caveat(about="stale", text=text, a=stale[0], b=stale[1])
    if a.of_same_dialogues(b):
        text = f"Both are scores of the same dialogues, {a.rollouts.id if a.rollouts else ''}."
        yield Caveat(about="same_dialogues", text=text, a=a.scores.id, b=b.scores.id)
    faults = [_faults(side) for side in (a, b)]
    if any(faults):
        text = f"Dialogues that ended by a fault and count as unsolved: {_sides(*faults)}."
        yield Caveat(about="faults", text=text, a=faults[0], b=faults[1])
    for key, words, who in (
        ("sweet_rollout", "version of sweet that played", lambda side: side.played_by),
        ("sweet_eval", "version of sweet that scored", lambda side: side.scored_by),
    ):
        yield from _differs(key, words, *(_version(side, who) for side in (a, b)))


def _changed(a: Evaluation, b: Evaluation, shared: Sequence[str]) -> list[str]:
    """Return the shared tasks whose content differs."""
    ours, theirs = (_contents(side, set(shared)) for side in (a, b))
    return sorted(task for task in ours.keys() & theirs.keys() if ours[task] != theirs[task])


def _contents(side: Evaluation, task_ids: set[str]) -> dict[str, str]:
    """Return the digest of each of these tasks; none where the dialogues are gone."""
    if side.rollouts is None or not side.run.file(side.rollouts).is_file():
        return {}
    tasks = (task for task in tasks_of(side.run, side.rollouts) if task.id in task_ids)
    return {task.id: digest_of(task.model_dump(mode="json")) for task in tasks}


def _human(side: Evaluation) -> str:
    """Return the simulated human's model, with the server's name for it if that differs."""
    requested, attempt = str(side.played.get("sim")), side.played_by
    served = requested if attempt is None else attempt.environment.get("human", requested)
    return requested if served == requested else f"{requested} (served as {served})"


def _tries(side: Evaluation) -> Any:
    """Return how often a model that plays the human is asked at most until a reply does not leak."""
    played = side.played
    asks = played.get("sim") != SCRIPTED and played.get("protocol") != "upstream"
    return played.get("human_tries", _UNKNOWN) if asks else _UNKNOWN


def _choice(played: Mapping[str, Any]) -> str:
    """Return how many replies were sampled at each turn, and who chose one of them (`sweet rollout --best-of`)."""
    meta = RolloutsMeta.read(played)
    if meta.best_of is None:
        return "one sample a turn"
    judge = meta.critic or meta.judge_model or meta.judge
    return f"best of {meta.best_of} by {judge}{', which sees the solution' if meta.informed else ''}"


def _faults(side: Evaluation) -> int:
    count = 0 if side.scored_by is None else side.scored_by.metrics.get("faults", 0)
    return count if isinstance(count, int) else 0


def _version(side: Evaluation, who: Callable[[Evaluation], Any]) -> Any:
    attempt = who(side)
    return _UNKNOWN if attempt is None else attempt.environment.get("sweet", _UNKNOWN)


def _differs(about: str, words: str, a: Any, b: Any) -> Iterator[Caveat]:
    if a != b and a is not _UNKNOWN and b is not _UNKNOWN:
        yield Caveat(about=about, text=f"{words[:1].upper()}{words[1:]}: {_sides(a, b)}.", a=a, b=b)


def _sides(a: Any, b: Any) -> str:
    return ", ".join(f"{'none' if value is None else value} in {name}" for name, value in (("A", a), ("B", b)))
