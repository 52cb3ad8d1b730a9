"""The dialogues of a run as facts: how they end, what success goes with, how the critic sees them, which to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, quantiles

from sweet.report.row_reader import Dialogue, Ranked, Scored, Turn
from sweet.report.schema import Bin, Binned, Rate, Sample, TurnAdvantage
from sweet.scoring.results.statistics import clustered_mean
from sweet.tasks.scores import RewardRule

BINS = 6
WHOLE = 12
"""Up to so many different values each is a bin of its own."""
RESAMPLES = 500
"""Of the interval of a bin, of which there are many."""
DOZEN = 12
UNITS = {
    "critic": "nats a token",
    "regression": "score",
    "oracle": "credit",
    "random": "drawn at random",
    "untrained": "nats a token",
    "function": "score",
}
POINTS = "points"
"""What a language model's advantages are in (see `sweet.stages.rows.Basis`)."""


@dataclass(frozen=True)
class Played:
    """The dialogues of one rollouts artifact with their scores, where there are some."""

    dialogues: Sequence[Dialogue]
    scores: Mapping[str, Scored]

    def reward(self, dialogue: Dialogue) -> float | None:
        scored = self.scores.get(dialogue.id)
        return dialogue.reward if scored is None else scored.reward


def measure(rule: RewardRule | None) -> str:
    """What a rate is of: success, or reward where no task is ever solved or it is not known when one is."""
    return "success" if rule is not None and rule.solved is not None else "reward"


def success_by(played: Played, rule: RewardRule | None) -> list[Binned]:
    """How many of the dialogues succeed, by turns, tokens and seconds. Without a rule: their mean reward."""
    figures: dict[str, Callable[[Dialogue], float | None]] = {
        "turns": lambda dialogue: dialogue.turns,
        "tokens": lambda dialogue: dialogue.tokens,
        "seconds": lambda dialogue: dialogue.seconds,
    }
    name_of = measure(rule)
    found = []
    for name, figure in figures.items():
        values = [
            (at, reward if rule is None else rule.worth(reward), dialogue.task)
            for dialogue in played.dialogues
            if (at := figure(dialogue)) is not None and (reward := played.reward(dialogue)) is not None
        ]
        bins = list(binned(name_of, values))
        if bins:
            found.append(Binned(by=name, bins=bins))
    return found


def binned(name: str, values: Iterable[tuple[float, float, str]]) -> Iterator[Bin]:
    """Bins of about as many dialogues each; equal figures are in one bin.

    Args:
        values: figure, success and task of each dialogue.
    """
    rising = sorted(values)
    distinct = len({at for at, _, _ in rising})
    most = distinct if distinct <= WHOLE else BINS
    start = 0
    for part in range(most):
        end = start + 1 if most == distinct else round(len(rising) * (part + 1) / most)
        while start < end < len(rising) and rising[end][0] == rising[end - 1][0]:
            end += 1
        inside, start = rising[start:end], max(start, end)
        if inside:
            successes, tasks = [success for _, success, _ in inside], [task for _, _, task in inside]
            mean = clustered_mean(successes, tasks, resamples=RESAMPLES)
            rate = Rate(name=name, mean=mean.mean, low=mean.low, high=mean.high)
            yield Bin(low=inside[0][0], high=inside[-1][0], n=len(inside), rate=rate)


def ends(dialogues: Iterable[Dialogue]) -> dict[str, int]:
    """How many ended how, the most frequent first."""
    return counted(dialogue.ended for dialogue in dialogues)


def human_faults(dialogues: Iterable[Dialogue]) -> dict[str, int]:
    return counted(dialogue.human_fault for dialogue in dialogues if dialogue.human_fault)


def outcomes(scores: Mapping[str, Scored]) -> dict[str, int]:
    return counted(scored.outcome for scored in scores.values())


def counted(names: Iterable[str]) -> dict[str, int]:
    """The most frequent first; what is beyond the first dozen together."""
    falling = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
    rest = sum(number for _, number in falling[DOZEN:])
    return dict(falling[:DOZEN]) | ({"others": rest} if rest else {})


def unit(ranked: Ranked) -> str:
    return " and ".join(sorted({UNITS.get(basis, POINTS) for basis in ranked.bases}))


def by_turn(ranked: Ranked) -> list[TurnAdvantage]:
    return [_turn(number, ranked.turns[number]) for number in sorted(ranked.turns)]


def _turn(number: int, turn: Turn) -> TurnAdvantage:
    values = turn.advantages
    lower, median, upper = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return TurnAdvantage(
        turn=number,
        ranked=len(turn.spreads),
        candidates=len(values),
        mean=fmean(values),
        lower=lower,
        median=median,
        upper=upper,
        spread=fmean(turn.spreads),
        taken=fmean(turn.taken) if turn.taken else None,
    )


class _Choice:
    """Dialogues of one rollouts artifact that are shown, each with the rules by which it was chosen. Where several are
    equal by a rule, one with fewer turns is taken, then by id."""

    def __init__(self, played: Played) -> None:
        self.rewards = {d.id: reward for d in played.dialogues if (reward := played.reward(d)) is not None}
        self.fair = [d for d in played.dialogues if d.id in self.rewards and not d.fault]
        self.chosen: dict[str, list[str]] = {}

    def take(self, why: str, among: Iterable[Dialogue], key: Callable[[Dialogue], tuple[float | str, ...]]) -> None:
        found = min(among, key=key, default=None)
        if found is not None:
            self.chosen.setdefault(found.id, []).append(why)

    def rising(self, dialogue: Dialogue) -> tuple[float | str, ...]:
        return self.rewards[dialogue.id], dialogue.turns, dialogue.id

    def falling(self, dialogue: Dialogue) -> tuple[float | str, ...]:
        return -self.rewards[dialogue.id], dialogue.turns, dialogue.id

    def take_ranked(self, ranked: Collection[str]) -> None:
        judged = [dialogue for dialogue in self.fair if dialogue.id in ranked]
        self.take("best of those ranked", judged, self.falling)
        self.take("worst of those ranked", judged, self.rising)

    def samples(self, rollouts: str) -> list[Sample]:
        return [Sample(rollouts=rollouts, id=id, why=why) for id, why in self.chosen.items()]


def samples(rollouts: str, played: Played, ranked: Collection[str]) -> list[Sample]:
    """Dialogues to show, by rule: the best, the median and the worst by reward, the longest, a fault, and of those that
    were ranked the best and the worst."""
    choice = _Choice(played)
    choice.take("best reward", choice.fair, choice.falling)
    rising = sorted(choice.fair, key=choice.rising)
    choice.take("median reward", rising[len(rising) // 2 :][:1], choice.rising)
    choice.take("worst reward", choice.fair, choice.rising)
    choice.take("longest", played.dialogues, lambda d: (-d.turns, -(d.tokens or 0), d.id))
    choice.take("a fault", (d for d in played.dialogues if d.fault), lambda d: (d.ended, d.id))
    choice.take_ranked(ranked)
    return choice.samples(rollouts)


def ranked_samples(rollouts: str, played: Played, ranked: Collection[str]) -> list[Sample]:
    """Of dialogues that are looked at for the critic's sake alone."""
    choice = _Choice(played)
    choice.take_ranked(ranked)
    return choice.samples(rollouts)
