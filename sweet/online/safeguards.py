"""What is watched at each step, and when it is a collapse.

Online training finds the weakness of a reward or of a simulated human before it finds better questions, and what is
lost is lost within a few steps. So each step records what announces it, from its dialogues alone: rewards, leaks of the
human, the mean of -log p of the sampled tokens at the first turn and at later ones (an estimate of the entropy), the
length of replies, and the dialogues that met a limit.

A collapse is judged over a window of `WINDOW` steps, against the first such window and the best one, so that a bad draw
of tasks is none:

    reward   the mean fell below `REWARD_SHARE` of the best window's, and by more than the sum of both windows'
             standard errors
    leaks    the human leaks more often than at the start: the 95 % intervals of both shares (Wilson's) are apart
    entropy  the entropy at later turns over that at the first one grew to `ENTROPY_GROWTH` times that at the start
    limits   the share of dialogues that ended at a limit came more than half of the way from that at the start to 1

Where every page is an answer, which the next one supersedes, the last turn is a limit only for a dialogue without one.

The numbers were chosen, not searched: they are far outside of what steps that learn show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean, pstdev

from sweet.credit.base import Batch, Credit
from sweet.judges.control import CREDIT, CreditScorer
from sweet.learn.metrics import Record
from sweet.stages.intervals import wilson
from sweet.tasks.base import NO_ANSWER
from sweet.tasks.trajectory import Trajectory
from sweet.units import percent

WINDOW = 5
"""Steps of a window."""
REWARD_SHARE = 0.5
ENTROPY_GROWTH = 3.0

AT_LIMIT = ("out_of_turns", "token_limit", "context_overflow")
"""Outcomes of dialogues that ended at a limit."""


def step_figures(
    dialogues: Sequence[Trajectory],
    rewards: Mapping[str, float],
    solved: float | None,
    *,
    model_plays: bool,
    pages: bool = False,
) -> Record:
    """Measure the dialogues of a step.

    Args:
        rewards: by id, of those that have one.
        solved: the least reward of a solved task; None if no task is ever solved.
        model_plays: whether a model plays the human, so that it can leak.
        pages: whether every page is an answer.

    Returns:
        dialogues: their number.
        reward: mean reward; None if none has one.
        success: share that solved their task; None if no task is ever solved.
        leak_rate: share in which the human leaked; None without dialogues.
        entropy_first, entropy_late: mean -log p of the sampled tokens, at the agent's first turn and at the later ones;
            None where no token's probability is known.
        reply_tokens: mean tokens of a reply. turns: mean turns of a dialogue.
        limits: share of the dialogues that ended at a limit, or with a reply that was cut off.
    """
    entropies: list[list[float]] = []
    replies: list[int] = []
    truncated_count = 0
    for dialogue in dialogues:
        delivered = pages and dialogue.outcome == "out_of_turns" and dialogue.answer != NO_ANSWER
        truncated = dialogue.outcome in AT_LIMIT and not delivered
        for number, index in enumerate(dialogue.agent_turns):
            turn = dialogue.dialogue_history[index]
            truncated = truncated or turn.finish_reason == "length"
            if turn.token_ids is not None:
                replies.append(len(turn.token_ids))
            if turn.logprobs:
                entropies.extend([] for _ in range(number + 1 - len(entropies)))
                entropies[number].extend(-value for value in turn.logprobs)
        truncated_count += truncated
    known_rewards = [rewards[dialogue.id] for dialogue in dialogues if dialogue.id in rewards]
    late_entropies = [value for values in entropies[1:] for value in values]
    size = max(len(dialogues), 1)
    return {
        "dialogues": len(dialogues),
        "reward": fmean(known_rewards) if known_rewards else None,
        "success": fmean(value >= solved for value in known_rewards) if known_rewards and solved is not None else None,
        "leak_rate": fmean(model_plays and dialogue.leaks.any for dialogue in dialogues) if dialogues else None,
        "entropy_first": fmean(entropies[0]) if entropies and entropies[0] else None,
        "entropy_late": fmean(late_entropies) if late_entropies else None,
        "reply_tokens": fmean(replies) if replies else 0.0,
        "turns": sum(len(dialogue.agent_turns) for dialogue in dialogues) / size,
        "limits": truncated_count / size,
    }


def moving_reward(steps: Sequence[Record]) -> float | None:
    """Return the mean reward of the last window; None without rewards."""
    rewards = [step["reward"] for step in steps[-WINDOW:] if step["reward"] is not None]
    return fmean(rewards) if rewards else None


def collapse(steps: Sequence[Record]) -> str | None:
    """Return what shows a collapse in the last window, as a clause; None if nothing does, or too few steps are known.

    Args:
        steps: the records of all steps so far, in their order.
    """
    if len(steps) < 2 * WINDOW:
        return None
    first, last = steps[:WINDOW], steps[-WINDOW:]
    return _reward(steps) or _leaks(first, last) or _entropy(first, last) or _limits(first, last)


def _reward(steps: Sequence[Record]) -> str | None:
    rewards = [step["reward"] for step in steps if step["reward"] is not None]
    if len(rewards) < 2 * WINDOW:
        return None
    windows = [rewards[i : i + WINDOW] for i in range(len(rewards) - WINDOW + 1)]
    best_window, last_window = max(windows, key=fmean), windows[-1]
    error = (pstdev(best_window) + pstdev(last_window)) / math.sqrt(WINDOW)
    high, low = fmean(best_window), fmean(last_window)
    if low >= REWARD_SHARE * high or high - low <= error:
        return None
    return f"the mean reward fell from {high:.3f} to {low:.3f}"


def _leaks(first: Sequence[Record], last: Sequence[Record]) -> str | None:
    def rate(steps: Sequence[Record]) -> tuple[float, float, float] | None:
        size = sum(step["dialogues"] for step in steps)
        if not size:
            return None
        share = sum((step["leak_rate"] or 0.0) * step["dialogues"] for step in steps) / size
        return (share, *wilson(share, size))

    first_rate, last_rate = rate(first), rate(last)
    if first_rate is None or last_rate is None or last_rate[1] <= first_rate[2]:
        return None
    return f"the human leaks in {percent(last_rate[0])} of the dialogues, {percent(first_rate[0])} at the start"


def _entropy(first: Sequence[Record], last: Sequence[Record]) -> str | None:
    def ratio(steps: Sequence[Record]) -> float | None:
        records = [step for step in steps if step["entropy_late"] is not None and step["entropy_first"]]
        return fmean(step["entropy_late"] / step["entropy_first"] for step in records) if records else None

    first_ratio, last_ratio = ratio(first), ratio(last)
    if first_ratio is None or last_ratio is None or last_ratio < ENTROPY_GROWTH * first_ratio:
        return None
    return f"the entropy at later turns over that at the first one grew from {first_ratio:.2f} to {last_ratio:.2f}"


def _limits(first: Sequence[Record], last: Sequence[Record]) -> str | None:
    first_share, last_share = (fmean(step["limits"] for step in steps) for steps in (first, last))
    if last_share <= (1 + first_share) / 2:
        return None
    return f"{percent(last_share)} of the dialogues end at a limit, {percent(first_share)} at the start"


def turns_in_order(credits: Sequence[Credit], batch: Batch, scorer: CreditScorer) -> tuple[float, int]:
    """Return how many couples of turns of a task's dialogues their weights (means over tokens) order as the task does,
    a tie counting half, and how many couples it tells apart. Turns without a weight are not counted."""
    by_task: dict[str, list[tuple[float, float]]] = {}
    for credit in credits:
        if isinstance(credit.of, str) and credit.policy:
            turn_rewards = scorer.turn_rewards(batch.dialogues[credit.of])
            by_task.setdefault(batch.dialogues[credit.of].task_id, []).extend(
                (turn_rewards[turn][CREDIT], values if isinstance(values, float | int) else fmean(values))
                for turn, values in credit.policy.items()
                if turn in turn_rewards
            )
    couples = [
        0.5 if first[1] == second[1] else float((first[0] < second[0]) == (first[1] < second[1]))
        for turns in by_task.values()
        for first, second in combinations(turns, 2)
        if first[0] != second[0]
    ]
    return sum(couples), len(couples)
