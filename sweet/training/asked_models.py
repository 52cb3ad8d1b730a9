"""The models that a credit rule may ask, in any training: the critic of a run (`RunCritic`), found before it begins and
loaded when a rule first asks, and the others (`AskedModels`), which each kind of training opens in its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor

from sweet.credit.base import Batch, Credit, CreditRule, RewardTraining, TurnLogprobs, Which
from sweet.errors import UsageError
from sweet.hints import option
from sweet.learn.components import Objective
from sweet.learn.engine import Engine, scores_in_shares
from sweet.learn.logprobs import Scorer, SpanScores
from sweet.learn.metrics import Record
from sweet.learn.rows import CandidateTurn, TurnKey
from sweet.learn.sequences import TokenSequence
from sweet.learn.solution_logprob import SolutionReader
from sweet.llm.base import Reply
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.base import Reporter
from sweet.stages.critics import CriticSettings, load_critic, warn_dropped_turns, warn_if_at_chance
from sweet.tasks.markers import ANSWER_MARKER
from sweet.tasks.trajectory import Trajectory
from sweet.training.examples import DialogueEncoder
from sweet.training.reward_model import RewardModel
from sweet.training.token_terms import recorded_logprobs

if TYPE_CHECKING:
    from sweet.learn.critic import Critic


class RunCritic:
    """Answers for a critic; see `sweet.stages.critics.load_critic` for the errors of loading.

    Args:
        artifact: the critic.
        reporter: gets what it could not read.
    """

    def __init__(self, run: Run, artifact: Artifact, settings: CriticSettings, reporter: Reporter) -> None:
        self.artifact = artifact
        self._run, self._settings, self._reporter = run, settings, reporter
        self._warned = False

    @classmethod
    def find(
        cls,
        run: Run | None,
        rule: CreditRule,
        critic: str | None,
        settings: CriticSettings,
        reporter: Reporter,
        *,
        needed_by: str,
    ) -> RunCritic | None:
        """Return the critic that a rule asks; None for a rule that asks none.

        Args:
            run: None for one that does not exist yet.
            critic: its id; None for the newest finished one.

        Raises:
            UsageError: there is no critic, or one is named for a rule that asks none.
        """
        if not rule.asks_critic:
            if critic is not None:
                raise UsageError(f"The rule {rule.name} asks no critic.", where=option("critic", critic), fix="omit it")
            return None
        if run is None:
            raise UsageError(f"{needed_by} needs a critic, and there is no run yet.", fix="sweet train-critic")
        return cls(run, run.find("critic", critic, needed_by=needed_by), settings, reporter)

    @cached_property
    def _critic(self) -> Critic:
        self._reporter.say(f"Advantages by {self.artifact.id}.")
        warn_if_at_chance(self._run, self.artifact, self._reporter)
        return load_critic(self._run, self.artifact, self._reporter, self._settings)

    def advantages(self, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, float]]:
        """See `sweet.credit.base.Models.advantages`."""
        scores = self._critic.turn_scores(dialogues, None)
        if not self._warned:  # an online training asks at each step
            reader = self._critic.reader
            warn_dropped_turns(reader.dropped, reader.max_length, self._reporter)
            self._warned = reader.dropped > 0
        return {dialogue.id: turn_scores for dialogue, turn_scores in zip(dialogues, scores, strict=True)}


class AskedModels(ABC):
    """Implements `sweet.credit.base.Models` for models in the memory of this process.

    Args:
        budget: tokens of one forward pass.
        critic: answers for the run's critic; None where the rule asks none.
        reward: the reward model; None where the rule trains none.
        engine: of the ranks that ask together, with the same dialogues; each computes a share, and all get the same
            numbers. None for one process.
    """

    def __init__(
        self,
        encoder: DialogueEncoder,
        budget: int,
        critic: RunCritic | None = None,
        reward: RewardModel | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.encoder, self._budget, self._critic, self._engine = encoder, budget, critic, engine
        self._reward = reward

    @abstractmethod
    def open(self, model: Which) -> AbstractContextManager[Scorer]:
        """Return the scorer of a model but the sampler, within a context."""

    def reward_model(self) -> RewardModel:
        """Return the reward model.

        Raises:
            UsageError: a rule asks for one although it does not say so.
        """
        if self._reward is None:
            what = "The credit rule asks for a reward model, and none was prepared."
            raise UsageError(what, fix="set trains_reward = True in the rule")
        return self._reward

    @property
    def reward_figures(self) -> Record | None:
        """The metrics of the last training of the reward model; None where there was none."""
        return None if self._reward is None else self._reward.figures

    def logprobs(
        self, model: Which, dialogues: Sequence[Trajectory], *, informed: bool = False, top: int = 0
    ) -> dict[str, dict[int, TurnLogprobs]]:
        """See `sweet.credit.base.Models.logprobs`."""
        if model == "sampler":
            return self._sampler_logprobs(dialogues)
        rows = self.encoder.sequences(dialogues, informed=informed)
        logprobs: dict[str, dict[int, TurnLogprobs]] = {dialogue.id: {} for dialogue in dialogues}
        scores = self._scores(model, [sequence for _, sequence in rows], top) if rows else []
        for (name, sequence), values in zip(rows, scores, strict=True):
            start = 0
            for span in sequence.spans:
                tokens = slice(start, start + span.stop - span.start)
                logprobs[name][span.turn] = TurnLogprobs(
                    values.tokens[tokens], values.top_ids[tokens], values.top_logprobs[tokens]
                )
                start = tokens.stop
        return logprobs

    def solutions(self, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, TurnLogprobs]]:
        """See `sweet.credit.base.Models.solutions`."""
        reader = SolutionReader(self.encoder.encoder.tokenizer, self.encoder.max_length)
        rows: dict[TurnKey, TokenSequence] = {}
        for dialogue in dialogues:
            answer = (Reply(f"{ANSWER_MARKER}\n{dialogue.task.ground_truth}"),)
            for turn in dialogue.agent_turns:
                observation = tuple(dialogue.observation(turn, None))
                row = reader.solution(CandidateTurn(dialogue.id, dialogue.task, turn, observation, answer))
                rows |= {} if row is None else {(dialogue.id, turn): row}
        logprobs: dict[str, dict[int, TurnLogprobs]] = {dialogue.id: {} for dialogue in dialogues}
        scores = self._scores("policy", [*rows.values()], 0) if rows else []
        for (name, turn), values in zip(rows, scores, strict=True):
            logprobs[name][turn] = values
        return logprobs

    def advantages(self, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, float]]:
        """See `sweet.credit.base.Models.advantages`. Each rank has the whole critic.

        Raises:
            UsageError: a rule asks although it does not say so.
        """
        if self._critic is None:
            what = "The credit rule asks for advantages, and no critic was looked for."
            raise UsageError(what, fix="set asks_critic = True in the rule")
        return self._advantages(self._critic, dialogues)

    def train_reward(
        self, batch: Batch, credits: Sequence[Credit], objective: Objective, settings: RewardTraining
    ) -> None:
        """See `sweet.credit.base.Models.train_reward`."""
        self.reward_model().train(batch, credits, objective, settings, self)

    def _scores(self, model: Which, sequences: Sequence[TokenSequence], top: int) -> list[TurnLogprobs]:
        """Return the log-probabilities of all supervised ids of each sequence; of a value function, the values of the
        states before them."""
        with self.open(model) as scorer:
            return scores_in_shares(self._engine, scorer, sequences, self._budget, _logprobs_of, top=top)

    def _advantages(self, critic: RunCritic, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, float]]:
        if self._engine is None:
            return critic.advantages(dialogues)
        share = dialogues[self._engine.rank :: self._engine.world]
        parts = self._engine.all_gather(critic.advantages(share) if share else {})
        return {dialogue.id: parts[i % self._engine.world][dialogue.id] for i, dialogue in enumerate(dialogues)}

    def _sampler_logprobs(self, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, TurnLogprobs]]:
        by_name = {dialogue.id: dialogue for dialogue in dialogues}
        logprobs: dict[str, dict[int, TurnLogprobs]] = {name: {} for name in by_name}
        unrecorded: dict[str, Trajectory] = {}
        for name, sequence in self.encoder.sequences(dialogues, informed=False):
            for span in sequence.spans:
                turn = by_name[name].dialogue_history[span.turn]
                turn_logprobs = recorded_logprobs(turn, sequence.ids[span.start : span.stop])
                if turn_logprobs is None:
                    unrecorded[name] = by_name[name]
                else:
                    logprobs[name][span.turn] = TurnLogprobs(turn_logprobs)
        if unrecorded:
            computed = self.logprobs("policy", list(unrecorded.values()))
            logprobs |= {name: computed[name] | logprobs[name] for name in unrecorded}
        return logprobs


def _logprobs_of(scores: SpanScores) -> TurnLogprobs:
    def rows(values: Tensor | None) -> tuple[tuple[Any, ...], ...]:
        return () if values is None else tuple(map(tuple, values.tolist()))

    token_values = scores.token_logprobs if scores.states is None else scores.states
    return TurnLogprobs(tuple(token_values.tolist()), rows(scores.top_ids), rows(scores.top_logprobs))
