"""The candidates at a turn: sampled from the agent, or taken from an earlier ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sweet.learn.rows import CandidateRow, CandidateTurn, TurnKey
from sweet.llm.base import ChatClient, Reply, Sampling
from sweet.ranking.config import RankConfig
from sweet.stages.base import digest_of
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.trajectory import Trajectory


@dataclass(frozen=True)
class CandidateSampler:
    """Returns the candidates at a turn, with what the agent had seen there and the reply that it gave.

    Attributes:
        dialogues: by id.
        system: the agent's system prompt.
        recorded: the rows of an earlier ranking, whose candidates are taken where there is no client.
        client: samples candidates from the agent.
        sampling: the parameters of its requests; each turn has a seed of its own, which derives from theirs.
    """

    dialogues: Mapping[str, Trajectory]
    system: str
    recorded: Mapping[TurnKey, CandidateRow]
    client: ChatClient | None = None
    sampling: Sampling = field(default_factory=Sampling)

    async def sample(self, key: TurnKey) -> CandidateTurn:
        """Return the turn with its candidates.

        Raises:
            RequestFailed: the agent returned none.
        """
        name, index = key
        dialogue = self.dialogues[name]
        observation = tuple(dialogue.observation(index, self.system))
        if self.client is None:
            row = self.recorded[key]
            replies, prompt = tuple(candidate.reply for candidate in row.candidates), row.prompt_token_ids
        else:
            seed = int(digest_of([self.sampling.seed, "reply", *key])[:8], 16) >> 1
            completion = await self.client.chat(observation, replace(self.sampling, seed=seed))
            replies, prompt = completion.replies, completion.prompt_token_ids
        taken = Reply.of(dialogue.dialogue_history[index])
        return CandidateTurn(name, dialogue.task, index, observation, replies, taken, prompt)


def sampling_of(config: RankConfig, played: RolloutsMeta) -> Sampling:
    """Return the parameters of the options, with thoughts as in the dialogues where they say nothing."""
    thought = config.max_thought_tokens or played.max_thought_tokens
    return Sampling(
        temperature=config.temperature,
        max_tokens=config.max_tokens + (thought or 0),
        n=config.candidates,
        seed=config.seed,
        logprobs=config.judge == "critic",
        max_thought_tokens=thought,
        effort=config.effort or played.effort,
    )
