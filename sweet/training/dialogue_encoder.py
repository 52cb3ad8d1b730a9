"""Encodes whole dialogues with the settings of one training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sweet.credit.base import TurnLogprobs
from sweet.learn.sequences import TokenSequence
from sweet.learn.tokens import ChatEncoder, EncodedDialogue, TooLong
from sweet.tasks.base import ProtocolName
from sweet.tasks.trajectory import Trajectory


class DialogueEncoder:
    """Encodes dialogues with the settings of one training.

    Args:
        max_length: tokens of a sequence at most; longer dialogues lose early turns.
    """

    def __init__(self, encoder: ChatEncoder, protocol: ProtocolName, max_length: int | None) -> None:
        self.encoder, self.protocol, self.max_length = encoder, protocol, max_length

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
            protocol=self.protocol,
            max_length=self.max_length,
        )

    def sequences(self, dialogues: Sequence[Trajectory], *, informed: bool) -> list[tuple[str, TokenSequence]]:
        """Return the sequences of dialogues, each with its dialogue's id; none of one whose last turn does not fit."""
        found: list[tuple[str, TokenSequence]] = []
        for dialogue in dialogues:
            try:
                encoded = self.encode(dialogue, informed=informed)
            except TooLong:
                continue
            found += [(dialogue.id, sequence) for sequence in encoded.sequences]
        return found

    def logprobs(
        self,
        dialogues: Sequence[Trajectory],
        read: Callable[[list[TokenSequence]], list[TurnLogprobs]],
        *,
        informed: bool,
    ) -> dict[str, dict[int, TurnLogprobs]]:
        """Return the log-probabilities of turns; see `sweet.credit.base.Models.logprobs`.

        Args:
            read: returns those of all supervised ids of each sequence.
        """
        rows = self.sequences(dialogues, informed=informed)
        found: dict[str, dict[int, TurnLogprobs]] = {dialogue.id: {} for dialogue in dialogues}
        read_values = read([sequence for _, sequence in rows]) if rows else []
        for (name, sequence), values in zip(rows, read_values, strict=True):
            place = 0
            for span in sequence.spans:
                of_turn = slice(place, place + span.stop - span.start)
                found[name][span.turn] = TurnLogprobs(
                    values.tokens[of_turn], values.top_ids[of_turn], values.top_logprobs[of_turn]
                )
                place = of_turn.stop
        return found
