"""The models that a credit rule may ask in a training on recorded dialogues: the policy before its first step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from sweet.credit.base import TurnLogprobs, Which
from sweet.learn.logprobs import Scorer, supervised_count, token_logprobs
from sweet.learn.tokens import ChatEncoder, EncodedDialogue, TokenSequence, TooLong
from sweet.tasks.base import Recipe
from sweet.tasks.trajectory import Trajectory
from sweet.training.run_critic import RunCritic, advantages_of


class DialogueEncoder:
    """Encodes dialogues with the settings of one training.

    Args:
        max_length: tokens of a sequence at most; longer dialogues lose early turns.
    """

    def __init__(self, encoder: ChatEncoder, recipe: Recipe, max_length: int | None) -> None:
        self.encoder, self.recipe, self.max_length = encoder, recipe, max_length

    def encode(self, trajectory: Trajectory, *, informed: bool) -> EncodedDialogue:
        """Encode a dialogue.

        Args:
            informed: whether the training-time information is shown.

        Raises:
            TooLong: its last turn does not fit.
        """
        return self.encoder.dialogue(
            trajectory,
            trajectory.agent_system,
            hidden=trajectory.task.hidden if informed else None,
            recipe=self.recipe,
            max_length=self.max_length,
        )

    def logprobs(
        self,
        dialogues: Sequence[Trajectory],
        read: Callable[[list[TokenSequence]], list[list[float]]],
        *,
        informed: bool,
    ) -> dict[str, dict[int, TurnLogprobs]]:
        """Return the log-probabilities of turns; see `sweet.credit.base.Models.logprobs`.

        Args:
            read: returns one log-probability for each supervised id of each sequence.
        """
        sequences: list[TokenSequence] = []
        owners: list[str] = []
        found: dict[str, dict[int, TurnLogprobs]] = {}
        for dialogue in dialogues:
            found[dialogue.id] = {}
            try:
                encoded = self.encode(dialogue, informed=informed)
            except TooLong:
                continue
            sequences.extend(encoded.sequences)
            owners.extend([dialogue.id] * len(encoded.sequences))
        for owner, sequence, values in zip(owners, sequences, read(sequences) if sequences else [], strict=True):
            place = 0
            for span in sequence.spans:
                size = span.stop - span.start
                found[owner][span.turn] = TurnLogprobs(tuple(values[place : place + size]))
                place += size
        return found


class StartingPolicy:
    """Implements `sweet.credit.base.Models`: policy and start are the same model, which is not trained yet.

    Args:
        load: returns the scorer of the model; called when a rule first asks for probabilities. None for a training
            that is only planned: all probabilities are 1.
        budget: tokens of one forward pass.
        critic: answers for the run's critic; None where the rule asks none.
    """

    def __init__(
        self,
        encoder: DialogueEncoder,
        load: Callable[[], Scorer] | None,
        budget: int,
        critic: RunCritic | None = None,
    ) -> None:
        self.encoder, self._load, self._budget, self._critic = encoder, load, budget, critic

    @cached_property
    def _scorer(self) -> Scorer | None:
        return None if self._load is None else self._load()

    def logprobs(
        self, model: Which, dialogues: Sequence[Trajectory], *, informed: bool = False
    ) -> dict[str, dict[int, TurnLogprobs]]:
        """See `sweet.credit.base.Models.logprobs`."""
        return self.encoder.logprobs(dialogues, self._read, informed=informed)

    def advantages(self, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, float]]:
        """See `sweet.credit.base.Models.advantages`."""
        return advantages_of(self._critic, dialogues)

    def _read(self, sequences: list[TokenSequence]) -> list[list[float]]:
        if self._scorer is None:
            return [[0.0] * supervised_count(sequence) for sequence in sequences]
        return token_logprobs(self._scorer, sequences, self._budget)
