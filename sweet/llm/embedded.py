"""The embedded engine as a chat client: a model in this process, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sweet import collector
from sweet.device import Device
from sweet.llm.base import Alternatives, Completion, Effort, ImageMessage, Reply, RequestFailed, Sampling
from sweet.llm.pretrained import load_model, load_tokenizer, model_path
from sweet.llm.template import ChatTemplate
from sweet.llm.thoughts import Marks, marks_of, separate_ids
from sweet.tasks.base import Message

with collector.paused():  # it imports torch
    from sweet.llm.engine import EmbeddedEngine, Generated, Limits, ThoughtLimit


class EmbeddedClient:
    """Implements `sweet.llm.base.ChatClient` with an engine in this process.

    Attributes:
        model: the name that was requested.
        context: the maximum number of tokens of prompt and reply together; None if the model does not define one.
        on_completion: called with each completion of a chat.
    """

    limiter = None

    def __init__(self, model: str, engine: EmbeddedEngine, tokenizer: Any) -> None:
        self.model = model
        self.engine = engine
        self.tokenizer = tokenizer
        self.template = ChatTemplate(tokenizer)
        self._marks = marks_of(tokenizer)
        self.on_completion: Callable[[Completion], None] = lambda _completion: None

    @classmethod
    def load(cls, model: str, *, device: Device = "auto", limits: Limits | None = None) -> EmbeddedClient:
        """Load `model` and start its engine.

        Args:
            model: `micro`, a directory or a hub id.

        Raises:
            UsageError: the model cannot be used.
        """
        tokenizer = load_tokenizer(model)
        network = load_model(model, device, tokenizer=tokenizer)
        engine = EmbeddedEngine(network, end_ids(network, tokenizer), name=model_path(model), limits=limits)
        return cls(model, engine, tokenizer)

    @property
    def context(self) -> int | None:
        return self.engine.context

    @property
    def alive(self) -> bool:
        """Whether the engine accepts requests."""
        return self.engine.alive

    def reads(self, effort: Effort) -> bool:
        """Return whether the model's template tells this effort from others."""
        return self.template.reads(effort)

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Sample replies to chat messages; see `ChatClient.chat`."""
        if any(isinstance(message, ImageMessage) for message in messages):
            raise RequestFailed("The embedded engine runs text models and does not accept images.", where=self.model)
        try:
            ids = self.template.ids(messages, sampling.effort)
        except ValueError as error:
            raise RequestFailed(f"The prompt cannot be rendered: {error}.", where=self.model) from error
        opened = self.template.opened(sampling.effort)
        limit = self._thought_limit(sampling, opened)
        generated = await asyncio.wrap_future(self.engine.submit(ids, sampling, limit))
        completion = self._completion(ids, generated, [self._chat_reply(sequence, opened) for sequence in generated])
        self.on_completion(completion)
        return completion

    def _completion(self, prompt: Sequence[int], generated: Sequence[Generated], replies: list[Reply]) -> Completion:
        return Completion(
            replies=tuple(replies),
            prompt_tokens=len(prompt),
            completion_tokens=sum(len(sequence.ids) for sequence in generated),
            model=self.model,
            prompt_token_ids=tuple(prompt),
            thought_tokens=sum(reply.thought_tokens or 0 for reply in replies),
            version=max(sequence.version for sequence in generated),  # all have the same
        )

    def _thought_limit(self, sampling: Sampling, opened: Marks | bool) -> ThoughtLimit | None:
        if sampling.max_thought_tokens is None:
            return None
        marks = opened if isinstance(opened, Marks) else self._marks
        forced = self.tokenizer(marks.forced, add_special_tokens=False)["input_ids"]
        closing = self.tokenizer(marks.closing, add_special_tokens=False)["input_ids"]
        has_ended: Callable[[Sequence[int]], bool] = partial(self._writes, marks.closing)
        if len(closing) == 1:
            has_ended = partial(_ends_with, closing[0])
        has_begun = None if isinstance(opened, Marks) else partial(self._begins, marks.opening)
        return ThoughtLimit(sampling.max_thought_tokens, tuple(forced), has_ended, has_begun)

    def _writes(self, mark: str, ids: Sequence[int]) -> bool:
        """Whether the last of these ids completes a mark, which has at most as many tokens as bytes."""
        return mark in self.decode(ids[-len(mark) :], skip_special=False)

    def _begins(self, mark: str, ids: Sequence[int]) -> bool | None:
        """Whether the ids begin with a mark; None if they are too few to say."""
        text = self.decode(ids, skip_special=False).lstrip()
        return True if text.startswith(mark) else None if mark.startswith(text) else False

    async def update(self, weights: Mapping[str, Any], version: int) -> None:
        """Replace weights of the model; see `sweet.llm.updates.Policy`."""
        await asyncio.wrap_future(self.engine.update(weights, version))

    async def aclose(self) -> None:
        """Stop the engine and free its memory."""
        await asyncio.to_thread(self.engine.close)

    def _body(self, sequence: Generated) -> tuple[int, ...]:
        """The ids without the one that ended the reply."""
        return sequence.ids[:-1] if sequence.ids[-1] in self.engine.ends else sequence.ids

    def _chat_reply(self, sequence: Generated, opened: Marks | bool) -> Reply:
        """The reply with its thought apart. If it is a thought alone, the id that ended it belongs to the thought."""
        parts, count = separate_ids(self._body(sequence), self._decode, opened)
        reply = Reply(
            parts.spoken, sequence.finish_reason, sequence.ids, sequence.logprobs, self._alternatives(sequence)
        )
        if parts.thought is None:
            return reply
        tokens = len(sequence.ids) if not parts.closing else count
        return replace(reply, thought=parts.thought.strip(), thought_tokens=tokens)

    def _decode(self, ids: Sequence[int], skip_special: bool) -> str:
        return self.decode(ids, skip_special=skip_special)

    def _alternatives(self, sequence: Generated) -> tuple[Alternatives, ...] | None:
        if not any(sequence.top_logprobs):
            return None
        texts = {token: self.decode([token], skip_special=False) for top in sequence.top_logprobs for token, _ in top}
        texts |= {token: self.decode([token], skip_special=False) for token in sequence.ids}
        pairs = zip(sequence.ids, sequence.top_logprobs, strict=True)
        return tuple(Alternatives(texts[token], tuple((texts[other], p) for other, p in top)) for token, top in pairs)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of token ids."""
        text: str = self.tokenizer.decode(
            list(ids), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
        )
        return text


def _ends_with(token: int, ids: Sequence[int]) -> bool:
    return ids[-1] == token


def end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """All ids that end a reply: those of the generation configuration, the model and the tokenizer."""
    ends: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config.get_text_config(), tokenizer):
        found = getattr(source, "eos_token_id", None)
        ends.update(found if isinstance(found, list | tuple) else [] if found is None else [found])
    return frozenset(ends)
