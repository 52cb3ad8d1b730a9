"""The candidates at a turn: sampled from the agent, or taken from an earlier ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sweet.judges.base import SampledTurn, TurnKey, mean_logprob
from sweet.llm.base import ChatClient, Effort, Reply, Sampling
from sweet.llm.connect import EFFORT_IGNORED, effort_is_ignored
from sweet.ranking.config import RankConfig
from sweet.ranking.turns import SelectedTurn
from sweet.stages.base import Reporter, digest_of
from sweet.stages.meta import RolloutsMeta
from sweet.stages.rows import CandidateRow
from sweet.tasks.base import Message


class Candidates(NamedTuple):
    """The candidates at a turn.

    Attributes:
        logprobs: mean log-probability per token of each under the model that sampled it; None where not reported.
        prompt_token_ids: the ids that the agent read before them; None where not reported.
    """

    replies: tuple[Reply, ...]
    logprobs: tuple[float | None, ...]
    prompt_token_ids: tuple[int, ...] | None


class CandidateSource(Protocol):
    """Where the candidates of a turn come from."""

    async def candidates(self, turn: SelectedTurn, observation: Sequence[Message]) -> Candidates:
        """Return the candidates at a turn.

        Raises:
            RequestFailed: the agent returned none.
        """


@dataclass(frozen=True)
class AgentCandidates:
    """Samples candidates from the agent (implements `CandidateSource`).

    Attributes:
        candidates_per_turn: how many replies are sampled.
        max_tokens: of one reply.
        logprobs: whether the log-probabilities of the replies are requested.
        max_thought_tokens: after which a thought is ended; they are allowed in addition to `max_tokens`.
        effort: how much the agent is asked to think.
    """

    client: ChatClient
    candidates_per_turn: int
    temperature: float
    max_tokens: int
    seed: int
    logprobs: bool
    max_thought_tokens: int | None = None
    effort: Effort | None = None

    @classmethod
    def of(cls, client: ChatClient, config: RankConfig, played: RolloutsMeta, reporter: Reporter) -> AgentCandidates:
        """Sample as the options say, and think as in the dialogues where they say nothing; warn if the model does not
        learn how much to think."""
        effort = config.effort or played.effort
        if effort_is_ignored(client, effort):
            reporter.warn(EFFORT_IGNORED)
        return cls(
            client,
            candidates_per_turn=config.candidates,
            temperature=config.temperature,
            max_tokens=config.max_tokens,
            seed=config.seed,
            logprobs=config.judge == "critic",
            max_thought_tokens=config.max_thought_tokens or played.max_thought_tokens,
            effort=effort,
        )

    async def candidates(self, turn: SelectedTurn, observation: Sequence[Message]) -> Candidates:
        sampling = Sampling(
            temperature=self.temperature,
            max_tokens=self.max_tokens + (self.max_thought_tokens or 0),
            n=self.candidates_per_turn,
            seed=int(digest_of([self.seed, "reply", *turn.key])[:8], 16) >> 1,
            logprobs=self.logprobs,
            max_thought_tokens=self.max_thought_tokens,
            effort=self.effort,
        )
        completion = await self.client.chat(observation, sampling)
        return Candidates(completion.replies, tuple(map(mean_logprob, completion.replies)), completion.prompt_token_ids)


@dataclass(frozen=True)
class RecordedCandidates:
    """Returns the candidates of an earlier ranking (implements `CandidateSource`)."""

    rows: Mapping[TurnKey, CandidateRow]

    async def candidates(self, turn: SelectedTurn, observation: Sequence[Message]) -> Candidates:
        row = self.rows[turn.key]
        replies = tuple(
            Reply(
                c.text,
                "stop" if c.ended else "length",
                c.token_ids,
                thought=c.thought,
                thought_tokens=c.thought_tokens,
            )
            for c in row.candidates
        )
        return Candidates(replies, tuple(c.sampler for c in row.candidates), row.prompt_token_ids)


@dataclass(frozen=True)
class CandidateSampler:
    """Combines the candidates at a turn with what the agent had seen there and with the reply that it gave.

    Attributes:
        system: the agent's system prompt.
    """

    source: CandidateSource
    system: str

    async def sample(self, turn: SelectedTurn) -> SampledTurn:
        """Return the turn with its candidates.

        Raises:
            RequestFailed: the agent returned none.
        """
        observation = tuple(turn.trajectory.observation(turn.index, self.system))
        candidates = await self.source.candidates(turn, observation)
        taken = _taken(turn)
        return SampledTurn(
            turn.trajectory.id,
            turn.trajectory.task,
            turn.index,
            observation,
            replies=candidates.replies,
            logprobs=(*candidates.logprobs, mean_logprob(taken)),
            taken=taken,
            prompt_token_ids=candidates.prompt_token_ids,
        )


def _taken(turn: SelectedTurn) -> Reply:
    """Return the reply that was really given."""
    said = turn.trajectory.dialogue_history[turn.index]
    return Reply(
        said.said,
        said.finish_reason or "stop",
        said.token_ids,
        said.logprobs,
        thought=said.thought,
        thought_tokens=said.thought_tokens,
    )
