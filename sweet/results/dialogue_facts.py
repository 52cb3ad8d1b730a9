"""Facts about the dialogues of a run: endings, success by length, advantages by turn, and a choice of samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, quantiles

from sweet.results.facts import Bin, Binned, Rate, Sample, TurnAdvantage
from sweet.results.row_reader import Dialogue, Ranked, Scored, TurnAdvantages
from sweet.stages.intervals import clustered_mean
from sweet.tasks.scores import RewardRule

BINS = 6
WHOLE = 12
"""Up to this many distinct values each have their own bin."""
RESAMPLES = 500
"""Bootstrap resamples for the interval of a bin, of which there are many."""
MOST_OUTCOMES = 12
UNITS = {
    "critic": "nats a token",
    "regression": "score",
    "oracle": "credit",
    "random": "drawn at random",
    "untrained": "nats a token",
    "function": "score",
    "lookahead": "nats",
}
POINTS = "points"
"""The unit of a language model's advantages (see `sweet.learn.rows.Basis`)."""


@dataclass(frozen=True)
class ScoredDialogues:
    """The dialogues of one rollouts artifact with their scores, if they have any."""

    dialogues: Sequence[Dialogue]
    scores: Mapping[str, Scored]

    def reward(self, dialogue: Dialogue) -> float | None:
        scored = self.scores.get(dialogue.id)
        return dialogue.reward if scored is None else scored.reward


def measure(rule: RewardRule | None) -> str:
    """Return the measure of a rate: success, or reward if no reward counts as solved or the rule is unknown."""
    return "success" if rule is not None and rule.solved is not None else "reward"


def success_by(played: ScoredDialogues, rule: RewardRule | None) -> list[Binned]:
    """Return the success rate by turns, tokens and seconds. Without a rule: the mean reward."""
    lengths: dict[str, Callable[[Dialogue], float | None]] = {
        "turns": lambda dialogue: dialogue.turns,
        "tokens": lambda dialogue: dialogue.tokens,
        "seconds": lambda dialogue: dialogue.seconds,
    }
    name_of = measure(rule)
    result = []
    for name, length in lengths.items():
        values = [
            (at, reward if rule is None else rule.worth(reward), dialogue.task)
            for dialogue in played.dialogues
            if (at := length(dialogue)) is not None and (reward := played.reward(dialogue)) is not None
        ]
        bins = list(binned(name_of, values))
        if bins:
            result.append(Binned(by=name, bins=bins))
    return result


def binned(name: str, values: Iterable[tuple[float, float, str]]) -> Iterator[Bin]:
    """Yield bins of about equally many dialogues; equal values are in one bin.

    Args:
        values: value, success and task of each dialogue.
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
    """Count the endings, the most frequent first."""
    return counted(dialogue.ended for dialogue in dialogues)


def human_faults(dialogues: Iterable[Dialogue]) -> dict[str, int]:
    return counted(dialogue.human_fault for dialogue in dialogues if dialogue.human_fault)


def outcomes(scores: Mapping[str, Scored]) -> dict[str, int]:
    return counted(scored.outcome for scored in scores.values())


def counted(names: Iterable[str]) -> dict[str, int]:
    """Count names, the most frequent first; names after the first dozen are counted together as others."""
    falling = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
    rest = sum(number for _, number in falling[MOST_OUTCOMES:])
    return dict(falling[:MOST_OUTCOMES]) | ({"others": rest} if rest else {})


def unit(ranked: Ranked) -> str:
    return " and ".join(sorted({UNITS.get(basis, POINTS) for basis in ranked.bases}))


def by_turn(ranked: Ranked) -> list[TurnAdvantage]:
    return [_turn(number, ranked.turns[number]) for number in sorted(ranked.turns)]


def _turn(number: int, turn: TurnAdvantages) -> TurnAdvantage:
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


class _SampleChooser:
    """Chooses dialogues of one rollouts artifact, each with the rules that chose it.

    Ties are broken by fewer turns, then by id.
    """

    def __init__(self, played: ScoredDialogues) -> None:
        self.rewards = {d.id: reward for d in played.dialogues if (reward := played.reward(d)) is not None}
        self.fair = [d for d in played.dialogues if d.id in self.rewards and not d.fault]
        self.chosen: dict[str, list[str]] = {}

    def take(self, why: str, among: Iterable[Dialogue], key: Callable[[Dialogue], tuple[float | str, ...]]) -> None:
        best = min(among, key=key, default=None)
        if best is not None:
            self.chosen.setdefault(best.id, []).append(why)

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


def samples(rollouts: str, played: ScoredDialogues, ranked: Collection[str]) -> list[Sample]:
    """Choose dialogues to show.

    These are the best, the median and the worst by reward, the longest, one with a fault, and the best and the worst of
    the ranked ones.
    """
    choice = _SampleChooser(played)
    choice.take("best reward", choice.fair, choice.falling)
    rising = sorted(choice.fair, key=choice.rising)
    choice.take("median reward", rising[len(rising) // 2 :][:1], choice.rising)
    choice.take("worst reward", choice.fair, choice.rising)
    choice.take("longest", played.dialogues, lambda d: (-d.turns, -(d.tokens or 0), d.id))
    choice.take("a fault", (d for d in played.dialogues if d.fault), lambda d: (d.ended, d.id))
    choice.take_ranked(ranked)
    return choice.samples(rollouts)


def ranked_samples(rollouts: str, played: ScoredDialogues, ranked: Collection[str]) -> list[Sample]:
    """Choose the best and the worst of the ranked dialogues only."""
    choice = _SampleChooser(played)
    choice.take_ranked(ranked)
    return choice.samples(rollouts)
