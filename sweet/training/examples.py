"""From the rows of a run to the data of a training: token sequences in a pool, and examples that refer to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from sweet.credit.base import Batch, Credit, Models, Subject
from sweet.errors import SweetError
from sweet.learn.components import Example, TokenTerms
from sweet.learn.rows import Pair, Preference
from sweet.learn.sequences import Pool, TokenSequence
from sweet.learn.tokens import ChatEncoder, EncodedDialogue, TooLong
from sweet.stages.base import digest_of
from sweet.tasks.base import ProtocolName
from sweet.tasks.trajectory import Trajectory
from sweet.training.token_terms import Recorded, terms_of

T = TypeVar("T")


def draw(items: Sequence[T], limit: int | None, seed: int) -> list[T]:
    """Draw at most `limit` items by the seed, and keep their order; all of them where it is None."""
    if limit is None or limit >= len(items):
        return list(items)
    keys = sorted(range(len(items)), key=lambda i: digest_of([seed, "limit", i]))
    return [items[i] for i in sorted(keys[:limit])]


def hold_out(preferences: list[Preference], share: float, seed: int) -> tuple[list[Preference], list[Preference]]:
    """Split preferences by task into those to train on and those to measure on.

    Args:
        share: of the tasks that are held out, rounded down.
    """
    tasks = sorted({p.task_id for p in preferences}, key=lambda task: digest_of([seed, "holdout", task]))
    held_out = set(tasks[: math.floor(share * len(tasks))])
    return [p for p in preferences if p.task_id not in held_out], [p for p in preferences if p.task_id in held_out]


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
        sequences: list[tuple[str, TokenSequence]] = []
        for dialogue in dialogues:
            try:
                encoded = self.encode(dialogue, informed=informed)
            except TooLong:
                continue
            sequences += [(dialogue.id, sequence) for sequence in encoded.sequences]
        return sequences


class ExampleBuilder:
    """Encodes what is learned from into examples.

    Args:
        source: id of the artifact that is learned from, for errors.

    Attributes:
        pool: the encoded sequences.
        too_long: an error for each example that cannot be cut to the length, which is omitted.
    """

    def __init__(self, encoder: DialogueEncoder, source: str) -> None:
        self.encoder, self.source = encoder, source
        self.pool = Pool()
        self.too_long: list[TooLong] = []

    def credits(self, batch: Batch, credits: Sequence[Credit], models: Models) -> list[Example]:
        """Build examples from what a credit rule returned, without the training-time information.

        Args:
            models: asked for the probabilities of sampled tokens that were not recorded.

        Raises:
            UsageError: weights do not fit the tokens of their turn.
        """
        self._prepare([credit.of for credit in credits], batch.dialogues, reveal=False)
        weighted = [credit for credit in credits if credit.turns]
        recorded = Recorded(batch, models, [credit.of for credit in weighted])

        def example(credit: Credit) -> Example:
            subject = credit.of
            if isinstance(subject, Pair):
                built = self._pair(subject)
            elif isinstance(subject, Preference):
                built = self._preference(subject, batch.dialogues, reveal=False)
            else:
                chosen, task = self._side(subject, batch.dialogues, False), batch.dialogues[subject].task
                built = Example(subject, chosen, group=task.id)
            if credit.turns:
                built = self._with_terms(built, credit, recorded)
            return replace(built, preference=credit.preference, likelihood=credit.likelihood)

        return self._build_examples(credits, example)

    def dialogues(
        self,
        dialogues: Mapping[str, Trajectory],
        items: Sequence[Preference | str],
        *,
        reveal: bool,
        goals: Mapping[str, float] | None = None,
    ) -> list[Example]:
        """Build examples of whole dialogues. Those of one task are a group.

        Args:
            dialogues: by id, each with its agent's system prompt (`sweet.training.sources.Sources.dialogues`).
            items: preferences, or the ids of single dialogues.
            reveal: whether the training-time information is shown.
            goals: what a regression head learns of each dialogue, by id; None where it learns preferences.
        """
        self._prepare(items, dialogues, reveal=reveal)

        def goals_of(*names: str) -> tuple[float, ...]:
            return () if goals is None else tuple(goals[name] for name in names)

        def example(item: Preference | str) -> Example:
            if isinstance(item, str):
                side = self._side(item, dialogues, reveal)
                return Example(item, side, group=dialogues[item].task.id, goals=goals_of(item))
            built = self._preference(item, dialogues, reveal=reveal)
            return replace(built, goals=goals_of(item.chosen, item.rejected))

        return self._build_examples(items, example)

    def _prepare(self, subjects: Sequence[Subject], dialogues: Mapping[str, Trajectory], *, reveal: bool) -> None:
        """Announce the texts of all dialogues to the encoder."""
        names: list[str] = []
        for subject in subjects:
            if isinstance(subject, str):
                names.append(subject)
            elif isinstance(subject, Preference):
                names += [subject.chosen, subject.rejected]
        trajectories = [dialogues[name] for name in dict.fromkeys(names) if name in dialogues]
        texts = [t.dialogue_history[i].said for t in trajectories for i in t.agent_turns]
        self.encoder.encoder.prepare(texts, [t.task.hidden for t in trajectories] if reveal else [])

    def _preference(self, item: Preference, dialogues: Mapping[str, Trajectory], *, reveal: bool) -> Example:
        chosen, rejected = (self._side(name, dialogues, reveal) for name in (item.chosen, item.rejected))
        return Example(item.name, chosen, rejected, group=item.task_id)

    def _pair(self, pair: Pair) -> Example:
        """Build the example of a pair, or of a reply that stands alone. Those of one dialogue are a group."""
        rows, dropped = self.encoder.encoder.turn(
            pair.observation,
            [side.reply for side in pair.sides.values()],
            turn=pair.turn,
            name=f"Pair {pair.id}",
            max_length=self.encoder.max_length,
            prompt=pair.prompt_token_ids,
            tools=pair.tools or (),
        )
        chosen, *rejected = self.pool.put(pair.id, rows, dropped)
        return Example(pair.id, (chosen,), tuple(rejected), group=pair.trajectory_id)

    def _with_terms(self, example: Example, credit: Credit, recorded: Recorded) -> Example:
        """Return an example of the turns that have weights, with these."""
        turns = credit.turns
        chosen: list[int] = []
        terms: list[TokenTerms] = []
        for index in example.chosen:
            sequence = self.pool.sequences[index]
            spans = tuple(span for span in sequence.spans if span.turn in turns)
            if not spans:
                continue
            if len(spans) < len(sequence.spans):
                sequence = replace(sequence, spans=spans)
                [index] = self.pool.put((example.name, index, tuple(sorted(turns))), [sequence])
            chosen.append(index)
            terms.append(terms_of(sequence, credit, recorded))
        if not chosen:
            raise TooLong(f"{example.name}: no turn that has a weight fits.", fix="--max-length")
        return replace(example, chosen=tuple(chosen), terms=tuple(terms))

    def _side(self, name: str, dialogues: Mapping[str, Trajectory], reveal: bool) -> tuple[int, ...]:
        """Return the indices of a dialogue's sequences in the pool, which it is added to at first."""
        indices = self.pool.find(name)
        if indices is not None:
            return indices
        if name not in dialogues:
            raise SweetError(
                f"The dialogue {name} is not among the rollouts.",
                where=self.source,
                fix="preferences of these rollouts: eval and label them again",
            )
        encoded = self.encoder.encode(dialogues[name], informed=reveal)
        return self.pool.put(name, encoded.sequences, encoded.dropped)

    def _build_examples(self, items: Sequence[T], example: Callable[[T], Example]) -> list[Example]:
        """Build an example of each item, without those that cannot be cut to the length."""
        examples = []
        for item in items:
            try:
                examples.append(example(item))
            except TooLong as error:
                self.too_long.append(error)
        return examples
