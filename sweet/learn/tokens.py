"""Encodes dialogues as token ids with supervised spans, for any chat template.

The prompt of a turn is what the agent read: the ids recorded during sampling, otherwise the history as it was then,
rendered with the chat template and the generation prompt. The reply follows, with the thought before it
(`sweet.learn.replies`). Rendered dialogues are never searched for text, so a reply that contains marker text cannot
shift a mask. With the training-time information no prompt is a recorded one: it is rendered with that information in
it, and with the same history.

The turns of a dialogue form one sequence as long as the next prompt starts with exactly the ids so far, and separate
sequences otherwise. So it is for templates that rewrite history, as those do that drop the thoughts of earlier turns:
the prompt of a turn extends the prompts before it, and each thought is on a branch of its own, with the reply that
follows it. In a prefix tree (`sweet.learn.tree`) the longest prompt is the trunk, and is computed once.

A message with calls of tools is a turn of the agent as any other, and what tools return is read, never supervised.

`turn_tokens` says which tokens of a turn are supervised: thought and reply (`both`), the reply alone, or `separate`,
where the span is in two parts that weigh the same, however long each of them is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet.errors import UsageError
from sweet.hints import option
from sweet.learn.replies import ReplyEncoder, ReplyIds
from sweet.learn.sequences import Span, TokenSequence
from sweet.llm.base import Effort, Reply
from sweet.llm.template import ChatTemplate, effort_variables, render_chat
from sweet.tasks.base import Message, ProtocolName, Tool, TurnTokens, with_hidden
from sweet.tasks.trajectory import Trajectory

UPSTREAM_HIDDEN = "In light that the final answer is: {hidden}."
"""How protocol `upstream` shows the training-time information. It is the one sentence of the published code in this
project: a constant of its protocol, because published critics were trained with it and read nothing else."""


class TooLong(UsageError):
    """The parts that are never dropped (c, the opening, the last turn) exceed the maximum length."""


@dataclass(frozen=True)
class EncodedDialogue:
    """The sequences of one dialogue, and the number of early turns that were dropped to make it fit."""

    sequences: tuple[TokenSequence, ...]
    dropped: int


@dataclass(frozen=True)
class TurnTarget:
    """A turn to supervise: the index of its message, the ids of each reply to it, and the turn's index in the history.

    Attributes:
        suffix: the ids of each reply's result, which follow the reply and are not supervised.
        prompt: the recorded ids of the prompt, if the ids of all replies are recorded too.
    """

    index: int
    replies: list[ReplyIds]
    turn: int
    suffix: list[list[int]]
    prompt: Sequence[int] | None = None

    def ids_with_suffix(self, number: int) -> list[int]:
        return self.replies[number].ids + self.suffix[number]

    def span(self, start: int, turn_tokens: TurnTokens, number: int = 0) -> Span:
        """The span of a reply that starts at `start`, with the thought before it. A turn that is a thought alone is
        supervised in any case."""
        reply = self.replies[number]
        stop, suffix = start + len(reply.ids), len(self.suffix[number])
        reach = stop + suffix if suffix else None
        reply_start = start + reply.thought
        if turn_tokens == "both" or not reply.thought:
            return Span(start, stop, self.turn, reach)
        if turn_tokens == "reply":
            return Span(reply_start, stop, self.turn, reach)
        return Span(start, stop, self.turn, reach, split=reply_start)


class ChatEncoder:
    """Encodes dialogues for one tokenizer.

    Attributes:
        end_of_turn: the id that ends a reply.
        header: number of ids that the generation prompt adds after the last message.
        ends: the ids that may end a recorded reply: `end_of_turn` and the tokenizer's special ids.
        version: names the encoding of dialogues; a checkpoint of a training with another one is refused.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.
        turn_tokens: which tokens of a turn are supervised.
        effort: how much the agent was asked to think in the dialogues (`sweet.llm.base.Sampling`).

    Raises:
        UsageError: it has no chat template, or one in which replies cannot be located.
    """

    version = ""

    def __init__(self, tokenizer: Any, turn_tokens: TurnTokens = "both", effort: Effort | None = None) -> None:
        self.tokenizer, self.turn_tokens, self.effort = tokenizer, turn_tokens, effort
        self.name = str(getattr(tokenizer, "name_or_path", "") or "the tokenizer")
        if not getattr(tokenizer, "chat_template", None):
            raise UsageError(
                "The model has no chat template, so its replies cannot be located in a dialogue.",
                where=self.name,
                fix="use an instruction-tuned model, or put a chat_template into its tokenizer_config.json",
            )
        self._chat = ChatTemplate(tokenizer)
        self._replies = ReplyEncoder(tokenizer, effort, self._chat)
        self.end_of_turn, self.ends = self._replies.end_of_turn, self._replies.ends
        self.header = self._header()

    # The chat template ----------------------------------------------------------------------------------------

    def _template(self, messages: list[dict[str, str]], *, generate: bool) -> str:
        return render_chat(self.tokenizer, messages, effort_variables(self.effort), generate=generate)

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        rows: list[list[int]] = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return rows

    def _header(self) -> int:
        bare = self._template([{"role": "user", "content": "b"}], generate=False)
        prompt_ids, bare_ids = self._tokenize([self._replies.form.prompt, bare])
        return len(prompt_ids) - len(bare_ids) if self._replies.form.prompt.startswith(bare) else 0

    # Ids -------------------------------------------------------------------------------------------------------

    def prompts(
        self,
        conversations: Sequence[Sequence[Message]],
        *,
        hidden: str | None = None,
        protocol: ProtocolName = "paper",
        tools: Sequence[Tool] = (),
    ) -> list[list[int]]:
        """The ids of each conversation with its generation prompt.

        Args:
            hidden: the training-time information c, inserted at the start of the first user message.
            protocol: `upstream` inserts c before the rendered prompt instead, as plain text before the begin-of-text
                token.
            tools: that the agent was offered.

        Raises:
            UsageError: the template refuses a conversation.
        """
        hidden_prefix = ""
        if hidden is not None and protocol == "upstream":
            hidden_prefix, hidden = UPSTREAM_HIDDEN.format(hidden=hidden), None
        try:
            conversations = [m if hidden is None else with_hidden(m, hidden) for m in conversations]
            texts = [hidden_prefix + self._chat.text(messages, self.effort, tools) for messages in conversations]
        except ValueError as error:
            raise UsageError(f"A dialogue cannot be rendered for the model: {error}.", where=self.name) from error
        return self._tokenize(texts) if texts else []

    def texts(
        self,
        observation: Sequence[Message],
        replies: Sequence[Reply],
        prompt: Sequence[int] | None = None,
        tools: Sequence[Tool] = (),
    ) -> tuple[str, list[str]]:
        """A prompt and replies to it as text, with thoughts and the end-of-turn token, for engines with their own
        tokenisation: the texts of the ids that `turn` returns for the same arguments."""
        [rendered] = self.prompts([observation], tools=tools)
        recorded = _prompt_if_recorded(self.encode_replies(replies), prompt)
        prompt_ids = self._recorded_prompt(recorded, rendered, observation)
        text = self._chat.text(observation, self.effort, tools) if prompt_ids == rendered else self._decode(prompt_ids)
        return text, [self._replies.text(reply) for reply in replies]

    def replies(self, replies: Sequence[Reply]) -> list[list[int]]:
        """The ids of each reply, with its thought and its end-of-turn token (unless the reply was truncated)."""
        return [reply.ids for reply in self.encode_replies(replies)]

    def encode_replies(self, replies: Sequence[Reply]) -> list[ReplyIds]:
        """The ids of each reply as `replies` returns them, with the number of those that are its thought."""
        return self._replies.encode(replies)

    # Dialogues -------------------------------------------------------------------------------------------------

    def dialogue(
        self,
        trajectory: Trajectory,
        system: str | None,
        *,
        hidden: str | None = None,
        protocol: ProtocolName = "paper",
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
        tools = trajectory.tools or ()
        remaining, prompts, dropped = self._fit(messages, targets, hidden, protocol, max_length, name, tools)
        sequences = _merge(self._in_history(remaining, prompts), prompts, self.turn_tokens)
        return EncodedDialogue(tuple(map(self._finalize, sequences)), dropped)

    def turn(
        self,
        observation: Sequence[Message],
        replies: Sequence[Reply],
        *,
        turn: int,
        name: str,
        hidden: str | None = None,
        protocol: ProtocolName = "paper",
        max_length: int | None = None,
        prompt: Sequence[int] | None = None,
        tools: Sequence[Tool] = (),
    ) -> tuple[list[TokenSequence], int]:
        """Encode several replies to one observation.

        Args:
            turn: index of the turn in its dialogue's history.
            name: names the turn in errors.
            hidden, protocol: as for `prompts`.
            prompt: the recorded ids of the prompt that the agent read, if known. They are used with the recorded ids of
                the replies, where neither c is shown nor early turns are dropped.
            tools: that the agent was offered.

        Returns:
            One sequence for each reply, all with the same prompt ids, and the number of dropped turns.

        Raises:
            TooLong: the turn does not fit into `max_length` ids.
        """
        suffix = [self._reply_suffix(reply) for reply in replies]
        rows = self.encode_replies(replies)
        target = TurnTarget(len(observation), rows, turn, suffix, _prompt_if_recorded(rows, prompt))
        _, [prompt_ids], dropped = self._fit(
            self._prepare_messages(list(observation)), [target], hidden, protocol, max_length, name, tools
        )
        spans = [target.span(len(prompt_ids), self.turn_tokens, number) for number in range(len(replies))]
        ids = [(*prompt_ids, *target.ids_with_suffix(number)) for number in range(len(replies))]
        sequences = [TokenSequence(row, (span,)) for row, span in zip(ids, spans, strict=True)]
        return [self._finalize(sequence) for sequence in sequences], dropped

    # Overridden by encoders of other text (`sweet.learn.upstream`) or more than text (`sweet.learn.page_encoder`) ----

    def _dialogue_targets(self, trajectory: Trajectory, offset: int) -> list[TurnTarget]:
        """The agent's turns in a dialogue whose messages begin `offset` messages before its history."""
        turns = trajectory.agent_turns
        turn_messages = [trajectory.dialogue_history[i] for i in turns]
        texts = list(map(Reply.of, turn_messages))
        rows = zip(turns, self.encode_replies(texts), map(self._reply_suffix, texts), strict=True)
        return [
            TurnTarget(i + offset, [row], i, [suffix], _prompt_if_recorded([row], trajectory.prompt_ids(i)))
            for i, row, suffix in rows
        ]

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

    def _reply_suffix(self, reply: Reply) -> list[int]:
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
        protocol: ProtocolName,
        max_length: int | None,
        name: str,
        tools: Sequence[Tool],
    ) -> tuple[list[TurnTarget], list[list[int]], int]:
        """The remaining turns, their prompts, and the number of dropped turns."""
        last = targets[-1].index
        cuts = [i for i, message in enumerate(messages[:last]) if message.role == "assistant"] + [last]
        longest = 0
        for dropped, cut in enumerate(cuts):
            remaining = [target for target in targets if target.index >= cut]
            head = messages[: cuts[0]]
            conversations = [head + messages[cut : t.index] for t in remaining]
            prompts = self.prompts(conversations, hidden=hidden, protocol=protocol, tools=tools)
            if hidden is None and not dropped:
                recorded = [target.prompt for target in remaining]
                prompts = [self._recorded_prompt(*row) for row in zip(recorded, prompts, conversations, strict=True)]
            longest = max(
                len(prompt) + max(len(target.ids_with_suffix(number)) for number in range(len(target.replies)))
                for prompt, target in zip(prompts, remaining, strict=True)
            )
            if max_length is None or longest <= max_length:
                return remaining, prompts, dropped
        raise TooLong(
            f"{name}: its last turn with the opening takes {longest} tokens, more than "
            f"{option('max_length', max_length)}, so nothing of it could be supervised.",
            fix=option("max_length", longest),
        )

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _recorded_prompt(
        self, recorded: Sequence[int] | None, rendered: list[int], messages: Sequence[Message]
    ) -> list[int]:
        """The recorded ids of a prompt, or those of the rendered one if they are unknown, or not of these messages and
        this template.

        A server may have rendered it with a date, an effort or thoughts of its own, so the texts need not be the same;
        but they are from the last message on, up to what the recorded one adds to the generation prompt.
        """
        ids = list(recorded or rendered)
        if ids == rendered or min(ids) < 0 or max(ids) >= len(self.tokenizer):
            return rendered
        recorded_text, rendered_text = self._decode(ids), self._decode(rendered)
        last = _rendered_parts(messages[-1], rendered_text)[-1]
        if not recorded_text[recorded_text.rfind(last) :].startswith(rendered_text[rendered_text.rfind(last) :]):
            return rendered
        position = 0
        for part in (part for message in messages for part in _rendered_parts(message, recorded_text)):
            position = recorded_text.find(part, position)
            if position < 0:
                return rendered
            position += len(part)
        return ids


def _rendered_parts(message: Message, text: str) -> list[str]:
    """What a rendered text has of a message: its content, which templates write as JSON where it is a tool's, or the
    names of its calls, beside which they may leave the content out."""
    content = message.content.strip()
    if message.role == "tool" and content not in text:
        return [json.dumps(content, ensure_ascii=False)[1:-1]]
    return [call.name for call in message.tool_calls] if message.tool_calls else [content]


def _prompt_if_recorded(replies: Sequence[ReplyIds], prompt: Sequence[int] | None) -> Sequence[int] | None:
    """The recorded ids of a prompt; None if those of a reply to it are not the recorded ones: they would not fit."""
    return prompt if all(reply.recorded for reply in replies) else None


def _merge(
    targets: Sequence[TurnTarget], prompts: Sequence[list[int]], turn_tokens: TurnTokens
) -> tuple[TokenSequence, ...]:
    """One sequence as long as each prompt starts with the ids before it."""
    sequences: list[TokenSequence] = []
    ids: list[int] = []
    spans: list[Span] = []
    for target, prompt in zip(targets, prompts, strict=True):
        if ids and prompt[: len(ids)] != ids:
            sequences.append(TokenSequence(tuple(ids), tuple(spans)))
            spans = []
        ids = prompt + target.ids_with_suffix(0)
        spans.append(target.span(len(prompt), turn_tokens))
    return (*sequences, TokenSequence(tuple(ids), tuple(spans)))
