"""`sweet compare --human A B`: how alike two humans reply to the same questions.

A is dialogues that were played. B is dialogues too, or a human that is asked the questions of A (`--sim`): for each
question it gets the dialogue before it as A's human had it, with A's own replies, so that every question is the same to
both. Two sets of dialogues share a question where an agent asked it in the same words on the same task; where replies
differed before, so may what the human had revealed already, and `same_context` counts the questions without such a
difference.

Replies are measured by rules (sweet.scoring.humans.replies). A rate is a mean over replies or questions, with its
interval by bootstrap over tasks. If B is dialogues on the same tasks, turns, answers and, where both are scored,
success are compared by task, as `sweet compare` compares agents. Nothing is written.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.runs.jsonl import read_jsonl
from sweet.runs.lineage import input_of
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.scoring.humans.asking import Answers, ask_again
from sweet.scoring.humans.metrics import (
    AnyRate,
    DifferentReplies,
    HumanComparison,
    HumanOutcomes,
    HumanSide,
    SameQuestions,
)
from sweet.scoring.humans.replies import Exchange, Reply, exchanges, jaccard, measure, same_question
from sweet.scoring.results.compare import CompareConfig, pair_values
from sweet.scoring.results.evaluation import evaluations
from sweet.scoring.results.statistics import mean_difference
from sweet.stages.base import Reporter, StageResult
from sweet.stages.intervals import clustered_mean
from sweet.stages.meta import RolloutsMeta
from sweet.stages.record import UnknownRate
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory

LONGEST_QUOTE = 400
"""Characters of a question and a reply that are quoted."""


@dataclass
class Played:
    """The dialogues of one human.

    Attributes:
        human: its name. replies: to the agent, in the order of the dialogues.
        turns, answered: by task, of each dialogue.
        ids: of the dialogues.
    """

    run: Run
    rollouts: Artifact
    human: str
    replies: list[Exchange] = field(default_factory=list)
    turns: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    answered: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ids: set[str] = field(default_factory=set)

    def add(self, trajectory: Trajectory) -> None:
        self.ids.add(trajectory.id)
        self.turns[trajectory.task_id].append(len(trajectory.agent_turns))
        self.answered[trajectory.task_id].append(float(trajectory.outcome == "answered"))
        self.replies += exchanges(trajectory)


def run_compare_humans(
    a: str | Path, b: str | Path | None, config: CompareConfig, reporter: Reporter
) -> StageResult[HumanComparison]:
    """Compare two humans, each given by its dialogues as RUN or RUN:rollouts-1, with @HUMAN if they have several.

    Args:
        b: None to ask the human that the configuration names.

    Raises:
        UsageError: one of them does not exist, has several humans, or they share no question.
    """
    _check(b, config)
    ours = find_human(str(a))
    if b is None:
        answers = ask_again(ours.run, ours.rollouts, ours.replies, config, reporter)
        metrics = _measured_again(ours, answers, config.flips)
    else:
        theirs = find_human(str(b))
        if (ours.run.path.resolve(), ours.rollouts.id, ours.human) == (
            theirs.run.path.resolve(),
            theirs.rollouts.id,
            theirs.human,
        ):
            raise UsageError(f"Both sides are {ours.human} of {ours.rollouts.id}.", where=str(b), fix="name two humans")
        metrics = _measured(ours, theirs, config.flips)
    return StageResult("compare", ours.run.path, metrics)


def _check(b: str | Path | None, config: CompareConfig) -> None:
    given = config.sim is not None or bool(config.sim_url or config.persona or config.persona_file)
    if b is None and config.sim is None:
        raise UsageError(
            "The second human is missing.",
            where=option("human"),
            fix=Hint("name its dialogues, or ", option("sim", "MODEL"), " to ask a human the questions of the first"),
        )
    if b is not None and given:
        raise UsageError(
            "The second human is given by its dialogues, and by a model to ask.",
            where=option("sim") if config.sim else option("persona"),
            fix="omit one of the two",
        )


def find_human(reference: str) -> Played:
    """Return the dialogues of the human that RUN, RUN:rollouts-1 or either with @HUMAN refers to.

    Raises:
        UsageError: they do not exist, there is no such human, or there are several and none is named.
    """
    folder, human = _split(reference)
    run_path, colon, id = folder.rpartition(":")
    named = bool(colon) and not Path(folder).exists() and Path(run_path).is_dir()
    run = Run.open(Path(run_path if named else folder))
    rollouts = _rollouts(run, id if named else None)
    single = str(RolloutsMeta.of(rollouts).sim)
    found: dict[str, Played] = {}
    for trajectory in read_jsonl(run.file(rollouts), Trajectory):
        name = trajectory.human or single
        found.setdefault(name, Played(run, rollouts, name)).add(trajectory)
    if human is None and len(found) == 1:
        return next(iter(found.values()))
    if human not in found:
        what = f"{rollouts.id} has no dialogue with {human}." if human else f"{rollouts.id} has {len(found)} humans."
        names = ", ".join(f"{folder}@{name}" for name in sorted(found)) or "rollouts with dialogues"
        raise UsageError(what, where=reference, fix=f"one of {names}")
    return found[str(human)]


def _split(reference: str) -> tuple[str, str | None]:
    """Split a reference at the first @ before which there is a run."""
    for place, sign in enumerate(reference):
        before = reference[:place]
        if sign == "@" and (Path(before).is_dir() or Path(before.rpartition(":")[0] or "/missing").is_dir()):
            return before, reference[place + 1 :]
    return reference, None


def _rollouts(run: Run, id: str | None) -> Artifact:
    if id is not None and not id.startswith("rollouts-"):
        of = input_of(run.manifest(), run.find("scores", id, needed_by="compare --human"), "rollouts")
        id = None if of is None else of.id
    return run.find("rollouts", id, needed_by="compare --human")


def _measured(a: Played, b: Played, most: int) -> HumanComparison:
    asked: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
    for exchange in b.replies:
        asked[_key(exchange)].append(exchange)
    pairs: list[tuple[Exchange, Exchange]] = []
    for alike in (True, False):  # first those before which everything was the same
        taken = {id(exchange) for pair in pairs for exchange in pair}
        for ours in a.replies:
            if id(ours) in taken:
                continue
            left = [one for one in asked.get(_key(ours), ()) if id(one) not in taken]
            theirs = next((one for one in left if not alike or one.said == ours.said), None)
            if theirs is not None:
                pairs.append((ours, theirs))
                taken.add(id(theirs))
    replies = [(ours, measure(ours), theirs.reply, measure(theirs)) for ours, theirs in pairs]
    same = sum(ours.said == theirs.said for ours, theirs in pairs)
    dialogues = [theirs.dialogue for _, theirs in pairs]
    outcomes = _outcomes(a, b)
    if not pairs and outcomes is None:
        raise UsageError(
            f"{a.human} and {b.human} share neither a question nor a task.",
            where=str(b.run.path),
            fix=Hint("play the same tasks with the same agent and seed, or ask the second human: ", option("sim")),
        )
    warnings = [] if pairs else ["No agent asked both the same question: only their dialogues are compared."]
    more: dict[str, Any] = {} if outcomes is None else {"outcomes": outcomes}
    return HumanComparison(
        a=_side(a),
        b=_side(b),
        same=_same(replies, same),
        different=_different(replies, dialogues, most),
        failed=0,
        warnings=warnings + _changed(a, b),
        **more,
    )


def _measured_again(a: Played, answers: Answers, most: int) -> HumanComparison:
    known = [(ours, text) for ours, text in zip(answers.asked, answers.replies, strict=True) if text is not None]
    replies = [(ours, measure(ours), text, measure(ours, text)) for ours, text in known]
    side = _replies_of([(ours.task.id, reply) for ours, _, _, reply in replies])
    return HumanComparison(
        a=_side(a),
        b=HumanSide(
            human=answers.human,
            run=None,
            rollouts=None,
            dialogues=len({ours.dialogue for ours, _ in known}),
            tasks=len({ours.task.id for ours, _ in known}),
            replies=len(known),
            **side,
        ),
        same=_same(replies, len(replies)),
        different=_different(replies, [None] * len(replies), most),
        failed=len(answers.asked) - len(known),
        warnings=[],
    )


def _key(exchange: Exchange) -> tuple[str, str]:
    return exchange.task.id, same_question(exchange.question)


def _side(played: Played) -> HumanSide:
    return HumanSide(
        human=played.human,
        run=str(played.run.path),
        rollouts=played.rollouts.id,
        dialogues=len({exchange.dialogue for exchange in played.replies}),
        tasks=len({exchange.task.id for exchange in played.replies}),
        replies=len(played.replies),
        **_replies_of([(exchange.task.id, measure(exchange)) for exchange in played.replies]),
    )


def _replies_of(replies: Sequence[tuple[str, Reply]]) -> dict[str, AnyRate]:
    def rate(value: Callable[[Reply], float]) -> AnyRate:
        return _mean([(task, value(reply)) for task, reply in replies])

    return {
        "words": rate(lambda reply: reply.words),
        "facts": rate(lambda reply: len(reply.facts)),
        "unknown": rate(lambda reply: reply.unknown),
        "negates": rate(lambda reply: reply.negates),
        "leak": rate(lambda reply: reply.leak),
        "fault": rate(lambda reply: reply.fault),
    }


Pair = tuple[Exchange, Reply, str, Reply]
"""A question with A's reply, its measures, B's reply, and its measures."""


def _same(pairs: Sequence[Pair], same_context: int) -> SameQuestions:
    def rows(value: Callable[[Reply, Reply], float | None]) -> list[tuple[str, float]]:
        found = ((exchange.task.id, value(ours, theirs)) for exchange, ours, _, theirs in pairs)
        return [(task, known) for task, known in found if known is not None]

    facts = rows(lambda a, b: jaccard(a.facts, b.facts))
    numbers = rows(lambda a, b: jaccard(a.numbers, b.numbers))
    polarity = rows(lambda a, b: None if None in (a.polarity, b.polarity) else float(a.polarity == b.polarity))
    return SameQuestions(
        questions=len(pairs),
        tasks=len({exchange.task.id for exchange, *_ in pairs}),
        same_context=same_context,
        facts=_mean(facts),
        facts_of=len(facts),
        numbers=_mean(numbers),
        numbers_of=len(numbers),
        polarity=_mean(polarity),
        polarity_of=len(polarity),
        unknown=_mean(rows(lambda a, b: a.unknown == b.unknown)),
        negates=_mean(rows(lambda a, b: a.negates == b.negates)),
        words_difference=_mean_difference(rows(lambda a, b: b.words - a.words)),
    )


def _mean(rows: Sequence[tuple[str, float]]) -> AnyRate:
    """Return the mean of values by task with its interval; unknown without any."""
    values = [float(value) for _, value in rows]
    if not values:
        return UnknownRate()
    bounds = min(0.0, *values, 0.0), max(1.0, *values, 1.0)
    return clustered_mean(values, [task for task, _ in rows], bounds=bounds).rate()


def _mean_difference(rows: Sequence[tuple[str, float]]) -> AnyRate:
    """Return the mean over tasks of differences, which may be negative."""
    by_task: dict[str, list[float]] = defaultdict(list)
    for task, value in rows:
        by_task[task].append(value)
    means = [fmean(by_task[task]) for task in sorted(by_task)]
    return mean_difference(means, span=max(1.0, *map(abs, means))).rate() if means else UnknownRate()


def _different(pairs: Sequence[Pair], dialogues: Sequence[str | None], most: int) -> list[DifferentReplies]:
    """Return the questions on which they differ most, at most one of a task."""
    found: dict[str, tuple[float, DifferentReplies]] = {}
    for (exchange, ours, text, theirs), dialogue in zip(pairs, dialogues, strict=True):
        alike = jaccard(ours.facts, theirs.facts)
        opposite = None not in (ours.polarity, theirs.polarity) and ours.polarity != theirs.polarity
        alike = 0.0 if opposite else 1.0 if alike is None else alike
        if alike < min(1.0, found[exchange.task.id][0] if exchange.task.id in found else 1.0):
            quoted = (part[:LONGEST_QUOTE] for part in (exchange.question, exchange.reply, text))
            question, a, b = quoted
            row = DifferentReplies(
                task=exchange.task.id, a_id=exchange.dialogue, b_id=dialogue, question=question, a=a, b=b
            )
            found[exchange.task.id] = alike, row
    ordered = sorted(found.values(), key=lambda item: (item[0], item[1].task))
    return [row for _, row in ordered[:most]]


def _outcomes(a: Played, b: Played) -> HumanOutcomes | None:
    most = max((turns for side in (a, b) for task in side.turns.values() for turns in task), default=1.0)
    turns = pair_values(a.turns, b.turns, (0.0, max(1.0, most)))
    answered = pair_values(a.answered, b.answered, (0.0, 1.0))
    if turns is None or answered is None:
        return None
    more: dict[str, Any] = {}
    ours, theirs = _rates(a), _rates(b)
    if ours is not None and theirs is not None:
        name, figure = next(iter(task_kind(a.run.manifest().task).metrics.items()))
        compared = pair_values(ours, theirs, (figure.low, figure.high))
        if compared is not None:
            more = {"figure": name, "rate": compared}
    return HumanOutcomes(tasks=turns.tasks, turns=turns, answered=answered, **more)


def _rates(played: Played) -> Mapping[str, Sequence[float]] | None:
    """Return the first metric of each dialogue with this human, by task; None where it is not scored."""
    scored = [one for one in evaluations(played.run) if one.rollouts is not None]
    own = [one for one in scored if one.rollouts is not None and one.rollouts.id == played.rollouts.id]
    if not own:
        return None
    values = own[-1].values()
    figure = next(iter(own[-1].kind.metrics))
    chosen = values.by_human(played.human).get(played.human)
    return None if chosen is None else chosen.of(figure)


def _changed(a: Played, b: Played) -> list[str]:
    """Return what else is not the same on both sides."""
    sides = [RolloutsMeta.of(side.rollouts) for side in (a, b)]
    kinds = Counter(side.run.manifest().task for side in (a, b))
    found = [f"Kind of task: {', '.join(sorted(kinds))}."] if len(kinds) > 1 else []
    for name, words in (("agent", "agent"), ("max_turns", "turn limit"), ("recipe", "recipe")):
        ours, theirs = (getattr(side, name) for side in sides)
        if ours != theirs:
            found.append(f"{words[:1].upper()}{words[1:]}: {ours} in A, {theirs} in B.")
    tasks = [{exchange.task.id: exchange.task for exchange in _first(side.replies)} for side in (a, b)]
    changed = [task for task in tasks[0].keys() & tasks[1].keys() if tasks[0][task] != tasks[1][task]]
    if changed:
        found.append(f"Tasks with the same id differ: {len(changed)}, such as {min(changed)}.")
    return found


def _first(replies: Iterable[Exchange]) -> Iterable[Exchange]:
    """Return one exchange of each task."""
    return {exchange.task.id: exchange for exchange in replies}.values()
