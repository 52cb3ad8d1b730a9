"""Inference with critics: scores of replies to an observation and of whole dialogues.

A `Critic` is either an `AdvantageCritic`, which computes equation (3) of arXiv 2503.15478, or a `RegressionCritic` with
a head (`sweet.learn.head`; in the paper the ablation for code and the critic for pages); callers do not need to know
which. Both encode dialogues with a `Reader`.

In equation (3) critic and reference read the same ids, including the training-time information c unless the critic was
trained without it. The context of the reference can be reduced to the dialogue: then the advantage is what c and the
training add together. Protocol `upstream` computes what the published ranking code computes: the critic's mean includes
the header of the turn and excludes the end token, a second begin-of-text token precedes c (`sweet.learn.upstream`), and
the reference is the sampler's mean log-probability without c; if the sampler did not return it, that of the base model
without c.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sweet.errors import UsageError
from sweet.learn.components import Normalize, Target
from sweet.learn.logprobs import TOKEN_BUDGET, Scorer, group_logprobs, scorer_of, span_logprobs, span_values
from sweet.learn.objectives import dialogue_scores, side_scores
from sweet.learn.rows import Candidate, CandidateTurn
from sweet.learn.sequences import TokenSequence
from sweet.learn.tokens import ChatEncoder, TooLong
from sweet.learn.upstream import ranked_spans, scoring_prefix
from sweet.llm.base import Effort
from sweet.tasks.base import ProtocolName, ReferenceContext, TurnTokens, reference_context_of
from sweet.tasks.trajectory import Trajectory


class Reader:
    """Encodes the input of a critic.

    Attributes:
        dropped: number of early turns that were dropped so far to fit the maximum length, in inputs with c.

    Args:
        informed: the critic reads c (False for the variant `no-info`).
        max_length: maximum number of tokens of a sequence; None for no limit.
    """

    def __init__(self, encoder: ChatEncoder, *, informed: bool, protocol: ProtocolName, max_length: int | None) -> None:
        self.encoder = encoder
        self.informed, self.protocol, self.max_length = informed, protocol, max_length
        self.dropped = 0
        self._prefix = scoring_prefix(encoder.tokenizer) if protocol == "upstream" else ()

    def prepare(self, dialogues: Sequence[Trajectory] = (), turns: Sequence[CandidateTurn] = ()) -> None:
        """Announce what will be encoded, so that the encoder can prepare it in one batch."""
        texts = [t.dialogue_history[i].said for t in dialogues for i in t.agent_turns]
        texts += [message.content for turn in turns for message in turn.observation if message.role == "assistant"]
        texts += [reply.text for turn in turns for reply in turn.all_replies]
        self.encoder.prepare(texts, [t.task.hidden for t in dialogues] + [turn.task.hidden for turn in turns])

    def dialogue(
        self, trajectory: Trajectory, system: str | None, *, without_hidden: bool = False
    ) -> Sequence[TokenSequence]:
        """The sequences of a dialogue, none if its last turn does not fit; `without_hidden` omits c."""
        try:
            encoded = self.encoder.dialogue(
                trajectory, system, **self._settings(trajectory.task.hidden, without_hidden=without_hidden)
            )
        except TooLong:
            return ()
        return self._read(encoded.sequences, encoded.dropped, without_hidden=without_hidden)

    def turn(self, turn: CandidateTurn, *, without_hidden: bool = False) -> Sequence[TokenSequence]:
        """One sequence for each reply, none if the turn does not fit; `without_hidden` omits c."""
        settings = self._settings(turn.task.hidden, without_hidden=without_hidden)
        try:
            rows, dropped = self.encoder.turn(
                turn.observation, turn.all_replies, turn=turn.turn, name=turn.name, tools=turn.tools or (), **settings
            )
        except TooLong:
            return ()
        return self._read(rows, dropped, without_hidden=without_hidden)

    def _settings(self, hidden: str, *, without_hidden: bool) -> dict[str, Any]:
        """What the encoder is told; the maximum length is of the ids that may follow the prefix."""
        prefix_length = 0 if without_hidden else len(self._prefix)
        return {
            "hidden": hidden if self.informed and not without_hidden else None,
            "protocol": self.protocol,
            "max_length": None if self.max_length is None else self.max_length - prefix_length,
        }

    def _read(self, rows: Sequence[TokenSequence], dropped: int, *, without_hidden: bool) -> Sequence[TokenSequence]:
        if without_hidden:
            return rows
        self.dropped += dropped
        return [row.after(self._prefix) for row in rows]


class Critic(ABC):
    """A trained critic, which ranks replies and dialogues.

    Attributes:
        reader: encodes what it reads.
        budget: tokens of one forward pass.
    """

    def __init__(self, reader: Reader, budget: int) -> None:
        self.reader, self.budget = reader, budget

    @abstractmethod
    def judge(self, turns: Sequence[CandidateTurn]) -> list[list[Candidate]]:
        """Score all replies of each turn, in order; no scores for a turn that is too long. Equal replies to an
        observation are computed once."""

    @abstractmethod
    def turn_scores(self, dialogues: Sequence[Trajectory], system: str | None) -> list[dict[int, float]]:
        """The score of each turn of the agent, by the turn's index in its dialogue, comparable between the turns of one
        task. A dialogue is computed once for all its turns; turns that are dropped because of the length are
        missing."""

    @abstractmethod
    def score_dialogues(self, dialogues: Sequence[Trajectory], system: str | None) -> list[float | None]:
        """The score of each dialogue as a whole, as the training compares them: comparable between dialogues of one
        task; None for one that is too long."""


class AdvantageCritic(Critic):
    """A critic by equation (3), with a trained model and the frozen model it started from.

    Args:
        model, reference: causal models with the same vocabulary (`scorer_of`).
        tokenizer: the critic's.
        informed: the critic reads c (False for the variant `no-info`).
        reference_context: what the reference reads; None for the protocol's own. With the same model twice and
            `dialogue`, the advantage is how much more likely c makes a reply.
        normalize: how its training averaged log-ratios, and so how it compares: with `none` the advantage of a reply is
            their sum, else their mean.
        max_length: maximum number of tokens of a sequence; None for no limit.
        budget: tokens of one forward pass.
        share: compute prefixes that replies and turns share only once.
        turn_tokens: the tokens of a turn that the means run over.
        effort: how much the agent was asked to think in the dialogues.
    """

    def __init__(
        self,
        model: Any,
        reference: Any,
        tokenizer: Any,
        *,
        informed: bool = True,
        reference_context: ReferenceContext | None = None,
        protocol: ProtocolName = "paper",
        normalize: Normalize = "turn",
        max_length: int | None = None,
        budget: int = TOKEN_BUDGET,
        share: bool = True,
        turn_tokens: TurnTokens = "both",
        effort: Effort | None = None,
    ) -> None:
        encoder = ChatEncoder(tokenizer, turn_tokens, effort)
        super().__init__(Reader(encoder, informed=informed, protocol=protocol, max_length=max_length), budget)
        self.critic, self.reference = scorer_of(model, share=share), scorer_of(reference, share=share)
        self.protocol: ProtocolName = protocol
        self.normalize: Normalize = normalize
        self.reference_without_hidden = (reference_context or reference_context_of(protocol)) == "dialogue"

    def judge(self, turns: Sequence[CandidateTurn]) -> list[list[Candidate]]:
        reads_sampler = self.protocol == "upstream" and self.reference_without_hidden
        visible, reference_rows = self._rows(self.reader.turn, turns)
        critic_means, reference_means = self._means(self.critic, visible), self._means(self.reference, reference_rows)
        candidates_by_turn = []
        for number, turn in enumerate(turns):
            candidates: list[Candidate] = []
            for index, reply in enumerate(turn.all_replies if visible[number] and reference_rows[number] else ()):
                sampler_mean = reply.mean_logprob if reads_sampler else None
                reference = reference_means[number][index] if sampler_mean is None else sampler_mean
                span, logprob = visible[number][index].spans[0], critic_means[number][index]
                tokens = span.stop - span.start
                advantage = self._advantage(logprob - reference, tokens)
                candidates.append(Candidate.of(reply, advantage, logprob=logprob, reference=reference, tokens=tokens))
            candidates_by_turn.append(candidates)
        return candidates_by_turn

    def turn_scores(self, dialogues: Sequence[Trajectory], system: str | None) -> list[dict[int, float]]:
        """The advantage of each turn of the agent, equation (3), by the turn's index in its dialogue, in nats per
        token, or in nats if they are not averaged; see `Critic`."""
        return [
            {turn: self._advantage(mean, tokens) for turn, (mean, tokens) in ratios.items()}
            for ratios in self._log_ratios(dialogues, system)
        ]

    def score_dialogues(self, dialogues: Sequence[Trajectory], system: str | None) -> list[float | None]:
        """The score of each dialogue in equation (2), which by default is the sum of its turns' advantages."""
        scores: list[float | None] = []
        for ratios in self._log_ratios(dialogues, system):
            means, counts = torch.tensor([*ratios.values()], dtype=torch.float64).reshape(-1, 2).unbind(1)
            owner = torch.zeros(len(counts), dtype=torch.long)
            score = side_scores(means * counts, torch.zeros_like(means), counts, owner, 1, self.normalize)
            scores.append(float(score) if ratios else None)
        return scores

    def _advantage(self, mean_log_ratio: float, tokens: int) -> float:
        """The advantage of a reply with this mean log-ratio."""
        return mean_log_ratio * tokens if self.normalize == "none" else mean_log_ratio

    def _log_ratios(self, dialogues: Sequence[Trajectory], system: str | None) -> list[dict[int, tuple[float, int]]]:
        """The mean of each turn's log-ratios and the number of its tokens, by dialogue and turn."""
        visible, reference_rows = self._rows(partial(self.reader.dialogue, system=system), dialogues)
        critic_means = self._turn_means(self.critic, visible)
        reference_means = self._turn_means(self.reference, reference_rows)
        tokens = [{span.turn: span.stop - span.start for row in rows for span in row.spans} for rows in visible]
        return [
            {turn: (mean - base[turn], counts[turn]) for turn, mean in means.items() if turn in base}
            for means, base, counts in zip(critic_means, reference_means, tokens, strict=True)
        ]

    def _rows(
        self, read: Callable[..., Sequence[TokenSequence]], items: Sequence[Any]
    ) -> tuple[list[Sequence[TokenSequence]], list[Sequence[TokenSequence]]]:
        """What the critic and the reference read of each turn or dialogue."""
        informed = [read(item) for item in items]
        reference = [read(item, without_hidden=True) for item in items] if self.reference_without_hidden else informed
        if self.protocol == "paper":
            return informed, reference
        return [[ranked_spans(self.reader.encoder, row) for row in rows] for rows in informed], reference

    def _turn_means(self, scorer: Scorer, dialogues: Sequence[Sequence[TokenSequence]]) -> list[dict[int, float]]:
        rows = [row for sequences in dialogues for row in sequences]
        scored = span_logprobs(scorer, rows, self.budget)
        return by_turn(dialogues, [sums / counts for sums, counts in scored])

    def _means(self, scorer: Scorer, groups: Sequence[Sequence[TokenSequence]]) -> list[list[float]]:
        unique = [list(dict.fromkeys(group)) for group in groups]
        means = group_logprobs(scorer, unique, self.budget)
        mean_by_row = [dict(zip(group, values, strict=True)) for group, values in zip(unique, means, strict=True)]
        return [[by_row[row] for row in group] for group, by_row in zip(groups, mean_by_row, strict=True)]


class RegressionCritic(Critic):
    """A critic with a regression head.

    There is no reference model; the head's score of a turn is all there is. After a training on preferences its zero
    point has no meaning, because only differences were compared, so the advantage of a reply is its score minus the
    mean score of the candidates sampled at the same turn: how much better than the agent's usual reply it is. The reply
    that was actually given is compared with the same mean.

    Args:
        encoder: encodes dialogues (`sweet.learn.page_encoder` for a critic that sees pages).
        target: what the head has learned.
        protocol, max_length, budget, share: as for `AdvantageCritic`.
    """

    def __init__(
        self,
        model: Any,
        encoder: ChatEncoder,
        *,
        target: Target = "preference",
        protocol: ProtocolName = "paper",
        max_length: int | None = None,
        budget: int = TOKEN_BUDGET,
        share: bool = True,
    ) -> None:
        super().__init__(Reader(encoder, informed=True, protocol=protocol, max_length=max_length), budget)
        self.scorer = Scorer(model, share=share)
        self.scorer.computes_logprobs = False
        self.target = target

    def judge(self, turns: Sequence[CandidateTurn]) -> list[list[Candidate]]:
        self.reader.prepare(turns=turns)
        groups = [self.reader.turn(turn) for turn in turns]
        unique = list(dict.fromkeys(row for rows in groups for row in rows))
        values = span_values(self.scorer, unique, self.budget)
        scores = {row: float(value[0]) for row, value in zip(unique, values, strict=True)}
        candidates_by_turn = []
        for turn, rows in zip(turns, groups, strict=True):
            sampled = [scores[row] for row in rows][: len(turn.replies)]
            baseline = sum(sampled) / max(len(sampled), 1)
            candidates: list[Candidate] = []
            for reply, row in zip(turn.all_replies, rows, strict=False):
                score, span = scores[row], row.spans[0]
                candidates.append(Candidate.of(reply, score - baseline, score, tokens=span.stop - span.start))
            candidates_by_turn.append(candidates)
        return candidates_by_turn

    def turn_scores(self, dialogues: Sequence[Trajectory], system: str | None) -> list[dict[int, float]]:
        self.reader.prepare(dialogues)
        encoded = [self.reader.dialogue(dialogue, system) for dialogue in dialogues]
        return by_turn(encoded, span_values(self.scorer, [row for rows in encoded for row in rows], self.budget))

    def score_dialogues(self, dialogues: Sequence[Trajectory], system: str | None) -> list[float | None]:
        scores: list[float | None] = []
        for turn_scores in self.turn_scores(dialogues, system):
            values, owner = torch.tensor([*turn_scores.values()]), torch.zeros(len(turn_scores), dtype=torch.long)
            scores.append(float(dialogue_scores(values, owner, 1, self.target)) if turn_scores else None)
        return scores


def by_turn(dialogues: Sequence[Sequence[TokenSequence]], values: Sequence[Tensor]) -> list[dict[int, float]]:
    """Values of spans, by dialogue and turn.

    Args:
        dialogues: the sequences of each dialogue.
        values: [spans] for each sequence, dialogue by dialogue.
    """
    remaining = iter(values)
    return [
        {span.turn: value for row in rows for span, value in zip(row.spans, next(remaining).tolist(), strict=True)}
        for rows in dialogues
    ]


def check_same_vocabulary(critic: Any, reference: Any, critic_name: str, reference_name: str) -> None:
    """Check that two tokenizers give comparable ids.

    Raises:
        UsageError: their vocabularies or chat templates differ.
    """
    if critic.get_vocab() == reference.get_vocab() and critic.chat_template == reference.chat_template:
        return
    what = "vocabularies" if critic.get_vocab() != reference.get_vocab() else "chat templates"
    raise UsageError(
        f"The critic and its reference have different {what}, so their log-probabilities cannot be compared.",
        where=f"critic {critic_name}, reference {reference_name}",
        fix="--reference with the model that the critic was trained from, or sweet train-critic again",
    )
