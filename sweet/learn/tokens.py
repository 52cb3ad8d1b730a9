"""Encodes dialogues as token ids with supervised spans, for any chat template.

The prompt of a turn is what the agent saw, rendered with the chat template and the generation prompt; the reply
follows: the ids recorded during sampling if they decode to the reply's text, otherwise the tokenised reply and the
template's end-of-turn token. The end-of-turn token is determined once for each tokenizer, by rendering a probe reply
and reading what the template writes after it. Rendered dialogues are never searched for text, so a reply that contains
marker text cannot shift a mask.

The turns of a dialogue form one sequence as long as the next prompt starts with exactly the ids so far, and separate
sequences otherwise (for templates that rewrite history). Both are correct; only the sharing differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.llm.template import ChatTemplate
from sweet.tasks.base import Message, Recipe, with_hidden
from sweet.tasks.trajectory import Trajectory

if TYPE_CHECKING:
    from sweet.learn.vision_processor import Picture

PROBE = "Zyxwv"
"""A reply that does not occur in data: one plain word, so that no template trims or escapes it."""

UPSTREAM_HIDDEN = "In light that the final answer is: {hidden}."
"""How recipe `upstream` shows the training-time information. It is the one sentence of the published code in this
project: a constant of its protocol, because published critics were trained with it and read nothing else."""

WHOLE = -1
"""The `turn` of a span that covers a whole sequence (recipe `upstream`, see `sweet.learn.objectives`)."""


class TooLong(UsageError):
    """The parts that are never dropped (c, the opening, the last turn) exceed the maximum length."""


@dataclass(frozen=True, slots=True)
class Span:
    """The supervised ids `[start, stop)` of a sequence, and the turn they belong to.

    `reach` is the end of the turn for a regression head, if it is after `stop`: after the result of the reply.
    """

    start: int
    stop: int
    turn: int
    reach: int | None = None

    @property
    def end(self) -> int:
        return self.stop if self.reach is None else self.reach

    def moved(self, by: int) -> Span:
        return Span(self.start + by, self.stop + by, self.turn, None if self.reach is None else self.reach + by)


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """Token ids with supervised spans, in order, and the images whose tokens are among them."""

    ids: tuple[int, ...]
    spans: tuple[Span, ...]
    images: tuple[Picture, ...] = ()

    def with_whole(self) -> TokenSequence:
        """The same sequence with an additional span over every id but the first, which nothing predicts."""
        return replace(self, spans=(*self.spans, Span(1, len(self.ids), WHOLE)))

    def after(self, prefix: tuple[int, ...]) -> TokenSequence:
        """The same sequence with ids before it."""
        if not prefix:
            return self
        return replace(self, ids=prefix + self.ids, spans=tuple(span.moved(len(prefix)) for span in self.spans))


@dataclass(frozen=True)
class EncodedDialogue:
    """The sequences of one dialogue, and the number of early turns that were dropped to make it fit."""

    sequences: tuple[TokenSequence, ...]
    dropped: int


@dataclass(frozen=True)
class ReplyText:
    """One reply: its text, the sampled ids if known, and whether the model ended it itself."""

    text: str
    token_ids: tuple[int, ...] | None = None
    ended: bool = True


@dataclass(frozen=True)
class TurnTarget:
    """A turn to supervise: the index of its message, the ids of each reply to it, and the turn's index in the history.

    `suffix` are the ids of each reply's result, which follow the reply and are not supervised.
    """

    index: int
    replies: list[list[int]]
    turn: int
    suffix: list[list[int]]

    def whole(self, number: int) -> list[int]:
        return self.replies[number] + self.suffix[number]

    def span(self, start: int, number: int = 0) -> Span:
        """The span of a reply that starts at `start`."""
        stop, suffix = start + len(self.replies[number]), len(self.suffix[number])
        return Span(start, stop, self.turn, stop + suffix if suffix else None)


class ChatEncoder:
    """Encodes dialogues for one tokenizer.

    Attributes:
        end_of_turn: the id that ends a reply.
        header: number of ids that the generation prompt adds after the last message.
        ends: the ids that may end a recorded reply: `end_of_turn` and the tokenizer's special ids.
        version: names the encoding of dialogues; a checkpoint of a training with another one is refused.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.

    Raises:
        UsageError: it has no chat template, or one in which replies cannot be located.
    """

    version = ""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.name = str(getattr(tokenizer, "name_or_path", "") or "the tokenizer")
        if not getattr(tokenizer, "chat_template", None):
            raise UsageError(
                "The model has no chat template, so its replies cannot be located in a dialogue.",
                where=self.name,
                fix="use an instruction-tuned model, or put a chat_template into its tokenizer_config.json",
            )
        self._chat = ChatTemplate(tokenizer)
        self._probe()

    # The chat template ----------------------------------------------------------------------------------------

    def _template(self, messages: list[dict[str, str]], *, generate: bool) -> str:
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generate))

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        rows: list[list[int]] = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return rows

    def _unmaskable(self, why: str) -> UsageError:
        return UsageError(
            f"The chat template cannot be masked: {why}.",
            where=self.name,
            fix="use a model whose template puts a reply directly after the generation prompt and ends it with a token",
        )

    def _probe(self) -> None:
        """Determine the end-of-turn token, the header's length and how replies are tokenised, and verify them on
        ids."""
        messages = [{"role": "user", "content": "b"}]
        bare, prompt = self._template(messages, generate=False), self._template(messages, generate=True)
        rendered = self._template([*messages, {"role": "assistant", "content": PROBE}], generate=False)
        if not rendered.startswith(prompt):
            raise self._unmaskable("a rendered reply does not begin with the generation prompt")
        lead, found, tail = rendered[len(prompt) :].partition(PROBE)
        if not found:
            raise self._unmaskable("a rendered reply does not contain the text of the reply")
        if not tail:
            raise self._unmaskable("nothing marks the end of a reply")
        self._lead = lead
        texts = [prompt, bare, tail, lead + PROBE, lead + PROBE + tail, prompt + lead + PROBE, rendered]
        prompt_ids, bare_ids, tail_ids, standalone, ended, joined, whole = self._tokenize(texts)
        self.end_of_turn = tail_ids[0]
        self.header = len(prompt_ids) - len(bare_ids) if prompt.startswith(bare) else 0
        # SentencePiece adds a space before a text that is tokenised alone; inside the dialogue there is none.
        self._anchor: str | None = None
        if joined[: len(prompt_ids)] == prompt_ids and joined[len(prompt_ids) :] != standalone:
            self._anchor, self._anchor_ids = prompt, len(prompt_ids)
            standalone, ended = joined[len(prompt_ids) :], whole[len(prompt_ids) :]
        if ended[: len(standalone) + 1] != [*standalone, self.end_of_turn]:
            raise self._unmaskable("the end of a reply is not a token of its own")
        special = {self.end_of_turn, *getattr(self.tokenizer, "all_special_ids", ())}
        self.ends: frozenset[int] = frozenset(special)

    # Ids -------------------------------------------------------------------------------------------------------

    def prompts(
        self, conversations: Sequence[Sequence[Message]], *, hidden: str | None = None, recipe: Recipe = "paper"
    ) -> list[list[int]]:
        """The ids of each conversation with its generation prompt.

        Args:
            hidden: the training-time information c, inserted at the start of the first user message.
            recipe: `upstream` inserts c before the rendered prompt instead, as plain text before the begin-of-text
                token.

        Raises:
            UsageError: the template refuses a conversation.
        """
        before = ""
        if hidden is not None and recipe == "upstream":
            before, hidden = UPSTREAM_HIDDEN.format(hidden=hidden), None
        try:
            texts = [before + self._chat.text(m if hidden is None else with_hidden(m, hidden)) for m in conversations]
        except ValueError as error:
            raise UsageError(f"A dialogue cannot be rendered for the model: {error}.", where=self.name) from error
        return self._tokenize(texts) if texts else []

    def texts(self, observation: Sequence[Message], replies: Sequence[ReplyText]) -> tuple[str, list[str]]:
        """A prompt and replies to it as text, including the end-of-turn token, for engines with their own
        tokenisation."""
        prompt = self._chat.text(observation)
        end = str(self.tokenizer.convert_ids_to_tokens(self.end_of_turn))
        return prompt, [self._lead + reply.text + (end if reply.ended else "") for reply in replies]

    def replies(self, replies: Sequence[ReplyText]) -> list[list[int]]:
        """The ids of each reply, including its end-of-turn token (unless the reply was truncated)."""
        rows: list[list[int] | None] = [self._recorded(reply) for reply in replies]
        missing = [i for i, row in enumerate(rows) if row is None]
        if missing:
            texts = [(self._anchor or "") + self._lead + replies[i].text for i in missing]
            skip = self._anchor_ids if self._anchor else 0
            for i, ids in zip(missing, self._tokenize(texts), strict=True):
                rows[i] = [*ids[skip:], self.end_of_turn] if replies[i].ended else ids[skip:]
        return [row or [self.end_of_turn] for row in rows]

    def _recorded(self, reply: ReplyText) -> list[int] | None:
        """The recorded ids with their end, if they are valid for this tokenizer and decode to the text; otherwise
        None."""
        if not reply.token_ids:
            return None
        ids = list(reply.token_ids)
        body = ids[:-1] if ids[-1] in self.ends else ids
        if max(ids) >= len(self.tokenizer) or self._spell(body).strip() != reply.text.strip():
            return None
        return [*ids, self.end_of_turn] if len(body) == len(ids) and reply.ended else ids

    def _spell(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    # Dialogues -------------------------------------------------------------------------------------------------

    def dialogue(
        self,
        trajectory: Trajectory,
        system: str | None,
        *,
        hidden: str | None = None,
        recipe: Recipe = "paper",
        max_length: int | None = None,
    ) -> EncodedDialogue:
        """Encode every turn of the agent in a dialogue, merged if the ids allow; a span's `turn` indexes its history.

        Early turns are dropped until the rest fits into `max_length` ids; the last turn and c are never dropped.

        Args:
            system: the agent's system prompt where the dialogue has none of its own.

        Raises:
            TooLong: the last turn does not fit.
            UsageError: the dialogue has no turn of the agent.
        """
        messages = self._prepare_messages(trajectory.messages(system))
        offset = len(messages) - len(trajectory.dialogue_history)
        if not trajectory.agent_turns:
            raise UsageError(
                f"Dialogue {trajectory.id} has no turn of the agent, so there is nothing to learn from it.",
                fix="leave it out of the data",
            )
        targets = self._dialogue_targets(trajectory, offset)
        name = f"Dialogue {trajectory.id}"
        remaining, prompts, dropped = self._fit(messages, targets, hidden, recipe, max_length, name)
        sequences = _merge(self._in_history(remaining, prompts), prompts)
        return EncodedDialogue(tuple(map(self._finalize, sequences)), dropped)

    def turn(
        self,
        observation: Sequence[Message],
        replies: Sequence[ReplyText],
        *,
        turn: int,
        name: str,
        hidden: str | None = None,
        recipe: Recipe = "paper",
        max_length: int | None = None,
    ) -> tuple[list[TokenSequence], int]:
        """Encode several replies to one observation.

        Args:
            turn: index of the turn in its dialogue's history.
            name: names the turn in errors.
            hidden, recipe: as for `prompts`.

        Returns:
            One sequence for each reply, all with the same prompt ids, and the number of dropped turns.

        Raises:
            TooLong: the turn does not fit into `max_length` ids.
        """
        target = TurnTarget(
            len(observation), self.replies(replies), turn, [self._reply_suffix(reply) for reply in replies]
        )
        _, prompts, dropped = self._fit(
            self._prepare_messages(list(observation)), [target], hidden, recipe, max_length, name
        )
        prompt, start = prompts[0], len(prompts[0])
        rows = [
            TokenSequence((*prompt, *target.whole(number)), (target.span(start, number),))
            for number in range(len(replies))
        ]
        return [self._finalize(row) for row in rows], dropped

    # Overridden by encoders of other text (`sweet.learn.upstream`) or more than text (`sweet.learn.page_encoder`) ----

    def _dialogue_targets(self, trajectory: Trajectory, offset: int) -> list[TurnTarget]:
        """The agent's turns in a dialogue whose messages begin `offset` messages before its history."""
        turns = trajectory.agent_turns
        turn_messages = [trajectory.dialogue_history[i] for i in turns]
        texts = [ReplyText(t.said, t.token_ids, t.finish_reason != "length") for t in turn_messages]
        rows = zip(turns, self.replies(texts), map(self._reply_suffix, texts), strict=True)
        return [TurnTarget(i + offset, [row], i, [suffix]) for i, row, suffix in rows]

    def _in_history(self, targets: list[TurnTarget], prompts: Sequence[list[int]]) -> list[TurnTarget]:
        """The turns with the replies that are supervised; `prompts` are the ids before each."""
        return targets

    def prepare(self, texts: Iterable[str], hidden: Iterable[str]) -> None:
        """Announce the replies and the values of c that will be encoded, so that they can be prepared in one batch."""

    def save_pretrained(self, folder: Path) -> None:
        """Write what is stored with a model that reads these sequences: the tokenizer."""
        self.tokenizer.save_pretrained(folder)

    def _prepare_messages(self, messages: list[Message]) -> list[Message]:
        """The messages as the model reads them."""
        return messages

    def _reply_suffix(self, reply: ReplyText) -> list[int]:
        """The ids of a reply's result, which follow the reply."""
        return []

    def _finalize(self, sequence: TokenSequence) -> TokenSequence:
        """A sequence in the form that the model accepts."""
        return sequence

    def _fit(
        self,
        messages: list[Message],
        targets: list[TurnTarget],
        hidden: str | None,
        recipe: Recipe,
        max_length: int | None,
        name: str,
    ) -> tuple[list[TurnTarget], list[list[int]], int]:
        """The remaining turns, their prompts, and the number of dropped turns."""
        last = targets[-1].index
        cuts = [i for i, message in enumerate(messages[:last]) if message.role == "assistant"] + [last]
        longest = 0
        for dropped, cut in enumerate(cuts):
            remaining = [target for target in targets if target.index >= cut]
            head = messages[: cuts[0]]
            prompts = self.prompts([head + messages[cut : t.index] for t in remaining], hidden=hidden, recipe=recipe)
            longest = max(
                len(prompt) + max(len(target.whole(number)) for number in range(len(target.replies)))
                for prompt, target in zip(prompts, remaining, strict=True)
            )
            if max_length is None or longest <= max_length:
                return remaining, prompts, dropped
        raise TooLong(
            Hint(
                f"{name}: its last turn with the opening takes {longest} tokens, more than ",
                option("max_length", max_length),
                ", so nothing of it could be supervised.",
            ),
            fix=option("max_length", longest),
        )


def _merge(targets: Sequence[TurnTarget], prompts: Sequence[list[int]]) -> tuple[TokenSequence, ...]:
    """One sequence as long as each prompt starts with the ids before it."""
    done: list[TokenSequence] = []
    ids: list[int] = []
    spans: list[Span] = []
    for target, prompt in zip(targets, prompts, strict=True):
        if ids and prompt[: len(ids)] != ids:
            done.append(TokenSequence(tuple(ids), tuple(spans)))
            spans = []
        ids = prompt + target.whole(0)
        spans.append(target.span(len(prompt)))
    return (*done, TokenSequence(tuple(ids), tuple(spans)))
