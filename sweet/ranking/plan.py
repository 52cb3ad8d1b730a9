"""`sweet rank --dry-run`: the turns are chosen and encoded as the ranking would, with the replies that were given.

Candidates are assumed to be as long as those replies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from sweet.learn.rows import CandidateRow, CandidateTurn, TurnKey
from sweet.llm.base import Reply
from sweet.llm.pretrained import is_here
from sweet.ranking.config import RankConfig
from sweet.ranking.inputs import Ranking, choose_ranking
from sweet.ranking.metrics import RankWork
from sweet.ranking.stage import say_left_out
from sweet.runs.damage import whole_rows
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_system
from sweet.stages.base import Reporter
from sweet.stages.meta import TrainedMeta
from sweet.stages.plans import Plan, begun_file, times


def plan_rank(run: Run, config: RankConfig, reporter: Reporter) -> Plan[RankWork]:
    """Return the work that `run_rank` would do."""
    ranking = choose_ranking(run, config)
    agent = None if ranking.agent is None else ranking.agent.name
    reporter.say(f"Counting the turns of {ranking.rollouts.id}.")
    say_left_out(ranking, reporter)
    begun = begun_file(run, "candidates", config.digest(), ranking.inputs)
    finished = set() if begun is None else {row.key for row in whole_rows(begun, CandidateRow)}
    missing = [turn for turn in ranking.turns if turn not in finished]
    reader = ranking.judge.reader(run)
    tokens = _count_tokens(run, reader or agent, ranking, missing, config)
    sampled = len(missing) * config.candidates
    tokens_read: int | None = None if agent else 0
    tokens_written: int | None = tokens_read
    tokens_judged: int | None = None if reader or config.judge == "llm" else 0
    assumed = []
    if tokens is not None:
        assumed.append("A candidate is as long as the replies that were really given at these turns.")
        candidate_tokens = times(sampled, tokens.reply)
        if agent:
            tokens_read, tokens_written = tokens.prompts, candidate_tokens
        if reader and config.packing == "tree":
            tokens_judged = None if candidate_tokens is None else tokens.shared + candidate_tokens
        elif reader:
            tokens_judged = tokens.plain * (1 + config.candidates)
    work = RankWork(
        turns=len(ranking.turns),
        missing=len(missing),
        candidates=sampled,
        tokens_read=tokens_read,
        tokens_written=tokens_written,
        tokens_judged=tokens_judged,
    )
    return Plan(work=work, assumed=assumed)


@dataclass(frozen=True)
class CountedTokens:
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


def _count_tokens(
    run: Run, model: str | None, ranking: Ranking, turns: Iterable[TurnKey], config: RankConfig
) -> CountedTokens | None:
    """Count the tokens of turns with the tokenizer of `model`, as the critic reads them; another judge is shown all.

    Returns:
        None where the model is not on this machine, or is shown screenshots.
    """
    from sweet.learn.critic import Reader
    from sweet.learn.tokens import ChatEncoder
    from sweet.learn.tree import Forest
    from sweet.llm.pretrained import load_tokenizer
    from sweet.stages.screenshots import shows_pages

    meta = TrainedMeta() if ranking.critic is None else TrainedMeta.of(ranking.critic)
    if model is None or not is_here(model):
        return None
    if meta.variant == "regression" and shows_pages(run, model):
        return None
    protocol, informed = config.protocol or meta.protocol or "paper", meta.variant != "no-info"
    encoder, system = ChatEncoder(load_tokenizer(model)), agent_system(run, ranking.rollouts)
    reader = Reader(encoder, informed=informed, protocol=protocol, max_length=config.max_length)
    prompts = plain = 0
    replies: list[int] = []
    forests: dict[str, Forest] = {}
    for name, index in turns:
        dialogue = ranking.dialogues[name]
        observation = tuple(dialogue.observation(index, system))
        reply = Reply.of(dialogue.dialogue_history[index])
        turn = CandidateTurn(name, dialogue.task, index, observation, (reply,), tools=dialogue.tools)
        rows, without_hidden = reader.turn(turn), reader.turn(turn, without_hidden=True)
        if not rows or not without_hidden:
            continue
        prompts += without_hidden[0].spans[0].start
        plain += len(rows[0].ids)
        replies.append(rows[0].spans[0].stop - rows[0].spans[0].start)
        forests.setdefault(name, Forest()).add([rows[0].ids])
    shared = sum(forest.slots for forest in forests.values())
    return CountedTokens(prompts, shared, plain, fmean(replies) if replies else None)
