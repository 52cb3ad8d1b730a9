"""The work of `sweet rank`: turns are drawn and encoded as the ranking does it, with the replies that were given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sweet.llm.weights import FORWARD, parameter_count
from sweet.ranking.turns import Key, Place
from sweet.runs.jsonl import read_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_system
from sweet.stages.rates import GPU, Outlook, share, times, total, whole
from sweet.stages.rows import CandidateRow

if TYPE_CHECKING:
    from sweet.learn.critic import Reader
    from sweet.ranking.config import RankConfig


@dataclass(frozen=True)
class Encoded:
    """Turns as a critic reads them, counted; turns that it cannot read are left out.

    Attributes:
        prompts: tokens before the replies, without c, as the agent reads them.
        judged: with c, and with the reply that was given, what the turns of a dialogue share counted once.
        plain: the same, nothing shared.
        reply: tokens of a reply that was given, on average; None where there is none.
    """

    prompts: int
    judged: int
    plain: int
    reply: float | None


def encode(reader: Reader, places: Iterable[Place], system: str) -> Encoded:
    """Count the turns as `reader` encodes them."""
    from sweet.learn.critic import TurnReplies
    from sweet.learn.tokens import ReplyText
    from sweet.learn.tree import Grove

    prompts = plain = 0
    replies: list[int] = []
    groves: dict[str, Grove] = {}
    for place in places:
        dialogue, turn = place.trajectory, place.trajectory.dialogue_history[place.turn]
        given = TurnReplies(
            name=f"Dialogue {dialogue.id}, turn {place.turn}",
            turn=place.turn,
            observation=dialogue.observation(place.turn, system),
            hidden=dialogue.task.hidden,
            replies=[ReplyText(turn.said, turn.token_ids, turn.finish_reason != "length")],
            sampler=[None],
        )
        informed, bare = reader.turn(given), reader.turn(given, bare=True)
        if not informed or not bare:
            continue
        prompts += bare[0].spans[0].start
        plain += len(informed[0].ids)
        replies.append(informed[0].spans[0].stop - informed[0].spans[0].start)
        groves.setdefault(dialogue.id, Grove()).add([informed[0].ids])
    judged = sum(grove.slots for grove in groves.values())
    return Encoded(prompts, judged, plain, fmean(replies) if replies else None)


def encoded_by(
    model: str | None, run: Run, config: RankConfig, critic: Artifact | None, rollouts: Artifact, places: list[Place]
) -> Encoded | None:
    """The turns by the tokenizer of a model of this machine; None where it is on none, or is shown pictures."""
    from sweet.learn.critic import Reader
    from sweet.learn.tokens import ChatEncoder
    from sweet.llm.pretrained import load_tokenizer
    from sweet.stages.screenshots import shows_pages

    meta = critic.meta if critic is not None else {}
    if model is None or parameter_count(model) is None:
        return None
    if meta.get("variant") == "regression" and shows_pages(run, model):
        return None
    recipe: Any = config.recipe or meta.get("recipe") or "paper"
    encoder, informed = ChatEncoder(load_tokenizer(model)), meta.get("variant") != "no-info"
    reader = Reader(encoder, informed=informed, recipe=recipe, max_length=config.max_length)
    return encode(reader, places, agent_system(run, rollouts))


def kept_turns(run: Run, config: RankConfig, inputs: Sequence[Artifact]) -> set[Key]:
    """The turns that an earlier call of the same ranking has left."""
    manifest = run.manifest()
    began = {attempt.id for attempt in manifest.attempts if attempt.digest == config.digest()}
    sums = {artifact.id: artifact.sha256 for artifact in inputs}
    same = [
        artifact
        for artifact in manifest.of_kind("candidates")
        if artifact.attempt in began and {ref.id: ref.sha256 for ref in artifact.inputs} == sums
    ]
    if not same or not run.file(same[-1]).exists():
        return set()
    return {row.key for row in read_jsonl(run.file(same[-1]), CandidateRow)}


def plan_ranking(
    run: Run,
    config: RankConfig,
    places: Sequence[Place],
    missing: list[Place],
    *,
    rollouts: Artifact,
    critic: Artifact | None,
    agent: str | None,
    judges: Sequence[str],
    gpus: int | None,
) -> dict[str, Any]:
    """A ranking of the turns that are missing.

    Args:
        agent: who is asked for replies; None where they are given.
        judges: the models that read each reply, the reference among them; none where something else judges.
    """
    encoded = encoded_by(next(iter(judges), agent), run, config, critic, rollouts, missing)
    outlook = Outlook(
        "rank",
        run,
        config.rates,
        kind=run.manifest().task,
        settings={**config.model_dump(mode="json"), "agent": agent},
        gpus=gpus,
        decides=("judge", "judge_model", "agent", GPU),
        tells=("candidates", "max_tokens", "temperature", "packing", "micro_batch_tokens", "engine", "device", "ray"),
    )
    candidates = len(missing) * config.candidates
    read: float | None = None if agent else 0
    written: float | None = read
    judged: float | None = None if judges or config.judge == "llm" else 0
    if encoded is not None:
        source = f"{run.path}:{rollouts.attempt}"
        replied = times(candidates, outlook.of_data("tokens", "a reply", encoded.reply, source))
        outlook.assumed.append("A candidate is as long as the replies that were really given at these turns.")
        if agent:
            read, written = encoded.prompts, replied
        if judges:
            plain = config.packing == "plain"
            judged = times(encoded.plain, 1 + config.candidates) if plain else total(encoded.judged, replied)
    asked = 0 if agent is None else times(FORWARD, parameter_count(agent), total(read, written))
    heard = total(*(times(FORWARD, parameter_count(judge), judged) for judge in judges))
    work = {
        "turns": len(places),
        "missing": len(missing),
        "candidates": candidates,
        "tokens_read": whole(read),
        "tokens_written": whole(written),
        "tokens_judged": whole(judged),
    }
    seconds = outlook.pace("candidate", lambda past: past.metric("candidates"))
    size = outlook.rate("bytes", "a turn", lambda past: share(past.size, past.rows))
    flops = None if config.judge == "llm" else total(asked, heard)
    hours = times(candidates, seconds)
    return outlook.plan(work, seconds=hours, flops=flops, size=times(len(missing), size))
