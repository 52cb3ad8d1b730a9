"""`sweet rank --dry-run`: the turns are chosen and encoded as the ranking would, with the replies that were given.

Candidates are assumed to be as long as those replies; the rest follows from rates of earlier rankings
(`sweet.stages.plans`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sweet.judges.base import TurnKey
from sweet.llm.weights import FLOPS_PER_PARAMETER, parameter_count
from sweet.ranking.metrics import RankWork
from sweet.ranking.turns import SelectedTurn
from sweet.runs.jsonl import read_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.meta import TrainedMeta
from sweet.stages.plans import Plan, PlanBuilder
from sweet.stages.rates import GPU, share, times, total, whole
from sweet.stages.rows import CandidateRow
from sweet.tasks.base import Recipe

if TYPE_CHECKING:
    from sweet.learn.critic import Reader


@dataclass(frozen=True)
class TurnTokens:
    """Tokens of some turns as a critic reads them. Turns that it cannot read are not counted.

    Attributes:
        prompts: before the replies, without the training-time information, as the agent reads them.
        shared: with that information and the reply that was given, the common prefix of a dialogue's turns once.
        plain: the same, every turn counted in full.
        reply: of a reply that was given, on average; None where there is none.
    """

    prompts: int
    shared: int
    plain: int
    reply: float | None


def count_tokens(
    run: Run,
    model: str | None,
    turns: Iterable[SelectedTurn],
    system: str,
    critic: Artifact | None,
    *,
    recipe: Recipe | None,
    max_length: int | None,
) -> TurnTokens | None:
    """Count the tokens of turns with the tokenizer of `model`.

    Args:
        system: the agent's system prompt.
        critic: decides what is shown of a turn; None for one that sees everything.
        recipe: the critic's own where None.

    Returns:
        None where the model is not on this machine, or is shown screenshots.
    """
    from sweet.learn.critic import Reader
    from sweet.learn.tokens import ChatEncoder
    from sweet.llm.pretrained import load_tokenizer
    from sweet.stages.screenshots import shows_pages

    meta = TrainedMeta() if critic is None else TrainedMeta.of(critic)
    if model is None or parameter_count(model) is None:
        return None
    if meta.variant == "regression" and shows_pages(run, model):
        return None
    used_recipe = recipe or meta.recipe or "paper"
    encoder, informed = ChatEncoder(load_tokenizer(model)), meta.variant != "no-info"
    return _encode(Reader(encoder, informed=informed, recipe=used_recipe, max_length=max_length), turns, system)


def _encode(reader: Reader, turns: Iterable[SelectedTurn], system: str) -> TurnTokens:
    from sweet.learn.critic import TurnReplies
    from sweet.learn.tokens import given_reply
    from sweet.learn.tree import Forest

    prompts = plain = 0
    replies: list[int] = []
    forests: dict[str, Forest] = {}
    for turn in turns:
        dialogue, said = turn.trajectory, turn.trajectory.dialogue_history[turn.index]
        given = TurnReplies(
            name=f"Dialogue {dialogue.id}, turn {turn.index}",
            turn=turn.index,
            observation=dialogue.observation(turn.index, system),
            hidden=dialogue.task.hidden,
            replies=[given_reply(said)],
            sampler=[None],
        )
        informed, without_hidden = reader.turn(given), reader.turn(given, without_hidden=True)
        if not informed or not without_hidden:
            continue
        prompts += without_hidden[0].spans[0].start
        plain += len(informed[0].ids)
        replies.append(informed[0].spans[0].stop - informed[0].spans[0].start)
        forests.setdefault(dialogue.id, Forest()).add([informed[0].ids])
    shared = sum(forest.slots for forest in forests.values())
    return TurnTokens(prompts, shared, plain, fmean(replies) if replies else None)


def finished_turns(run: Run, digest: str, inputs: Sequence[Artifact]) -> set[TurnKey]:
    """Return the turns that an earlier attempt at the same ranking has finished.

    Args:
        digest: of the ranking's configuration.
    """
    manifest = run.manifest()
    attempts = {attempt.id for attempt in manifest.attempts if attempt.digest == digest}
    input_digests = {artifact.id: artifact.sha256 for artifact in inputs}
    same = [
        artifact
        for artifact in manifest.of_kind("candidates")
        if artifact.attempt in attempts and {ref.id: ref.sha256 for ref in artifact.inputs} == input_digests
    ]
    if not same or not run.file(same[-1]).exists():
        return set()
    return {row.key for row in read_jsonl(run.file(same[-1]), CandidateRow)}


def plan_ranking(
    run: Run,
    rates: Sequence[str],
    settings: Mapping[str, Any],
    *,
    turns: int,
    missing: int,
    candidates: int,
    tokens: TurnTokens | None,
    counted_from: str,
    agent: str | None,
    readers: Sequence[str],
    asks_judge: bool,
    shared: bool,
    gpus: int | None,
) -> Plan[RankWork]:
    """Return the plan of a ranking.

    Args:
        rates: further runs, whose attempts give rates.
        settings: the configuration, to compare with that of earlier attempts.
        missing: turns that are not finished yet.
        candidates: for each turn.
        tokens: of the missing turns; None where they are not known.
        counted_from: where the tokens were counted, RUN:attempt.
        agent: the model that is asked for replies; None where they are recorded.
        readers: the models that read each reply, the reference included; empty where another judge judges.
        asks_judge: whether a language model judges.
        shared: whether common prefixes are computed once.
        gpus: that are held; None where not known.
    """
    builder = PlanBuilder(
        "rank",
        run,
        rates,
        kind=run.manifest().task,
        settings=settings,
        gpus=gpus,
        decides=("judge", "judge_model", "agent", GPU),
        compared=(
            "candidates",
            "max_tokens",
            "max_thought_tokens",
            "effort",
            "temperature",
            "packing",
            "micro_batch_tokens",
            "engine",
            "device",
            "ray",
        ),
    )
    sampled = missing * candidates
    read: float | None = None if agent else 0
    written: float | None = read
    judged: float | None = None if readers or asks_judge else 0
    if tokens is not None:
        of_candidates = times(sampled, builder.counted("tokens", "a reply", tokens.reply, counted_from))
        builder.assumed.append("A candidate is as long as the replies that were really given at these turns.")
        if agent:
            read, written = tokens.prompts, of_candidates
        if readers:
            judged = total(tokens.shared, of_candidates) if shared else times(tokens.plain, 1 + candidates)
    sampling_flops = 0 if agent is None else times(FLOPS_PER_PARAMETER, parameter_count(agent), total(read, written))
    reading_flops = total(*(times(FLOPS_PER_PARAMETER, parameter_count(reader), judged) for reader in readers))
    work = RankWork(
        turns=turns,
        missing=missing,
        candidates=sampled,
        tokens_read=whole(read),
        tokens_written=whole(written),
        tokens_judged=whole(judged),
    )
    seconds = builder.seconds_per("candidate", lambda earlier: earlier.metric("candidates"))
    size = builder.rate("bytes", "a turn", lambda earlier: share(earlier.size, earlier.rows))
    flops = None if asks_judge else total(sampling_flops, reading_flops)
    return builder.build(work, seconds=times(sampled, seconds), flops=flops, size=times(missing, size))
