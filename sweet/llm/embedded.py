"""The embedded engine as a chat client: a model in this process, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from sweet import collector
from sweet.deadline import off_the_clock
from sweet.device import Device
from sweet.llm.base import Alternatives, Completion, ImageMessage, Reply, RequestFailed, Sampling
from sweet.llm.call_formats import MARKS
from sweet.llm.concurrency import off_loop
from sweet.llm.pretrained import load_model, load_tokenizer, model_path
from sweet.llm.template import ChatTemplate, reply_ends, special_tokens
from sweet.llm.thoughts import ALL_MARKS, Marks, count_leading, marks_of, separate_calls, separate_ids
from sweet.tasks.base import Message

with collector.paused():  # it imports torch
    from sweet.llm.engine import EmbeddedEngine, Generated, Limits, ThoughtLimit


class ReplyEngine(Protocol):
    """Samples ids (`EmbeddedEngine`, `sweet.llm.tinker_engine.ServiceEngine`)."""

    @property
    def alive(self) -> bool: ...

    @property
    def context(self) -> int | None: ...

    @property
    def ends(self) -> frozenset[int]: ...

    def submit(
        self, prompt: Sequence[int], sampling: Sampling, thought: ThoughtLimit | None = None
    ) -> Future[list[Generated]]: ...

    def update(self, weights: Mapping[str, Any], version: int) -> Future[None]: ...

    def close(self) -> None: ...


class EmbeddedClient:
    """Implements `sweet.llm.base.ChatClient` with an engine in this process.

    Attributes:
        model: the name that was requested.
        context: the maximum number of tokens of prompt and reply together; None if the model does not define one.
        on_completion: called with each completion of a chat.
    """

    def __init__(self, model: str, engine: ReplyEngine, tokenizer: Any, marks: Sequence[Marks] = ALL_MARKS) -> None:
        self.model = model
        self.engine, self.context = engine, engine.context
        self.tokenizer = tokenizer
        self.template = ChatTemplate(tokenizer, marks)
        self._known, self._marks = marks, marks_of(tokenizer, marks)
        self.on_completion: Callable[[Completion], None] = lambda _completion: None

    @classmethod
    def load(
        cls,
        model: str,
        *,
        device: Device = "auto",
        limits: Limits | None = None,
        marks: Sequence[Marks] = ALL_MARKS,
    ) -> EmbeddedClient:
        """Load `model` and start its engine.

        Args:
            model: `micro`, a directory or a hub id.
            marks: those that a thought may have.

        Raises:
            UsageError: the model cannot be used.
        """
        tokenizer = load_tokenizer(model)
        network = load_model(model, device, tokenizer=tokenizer)
        engine = EmbeddedEngine(network, reply_ends(network, tokenizer), name=model_path(model), limits=limits)
        return cls(model, engine, tokenizer, marks)

    @property
    def alive(self) -> bool:
        """Whether the engine accepts requests."""
        return self.engine.alive

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Sample replies to chat messages; see `ChatClient.chat`. Raises UsageError for tools that the model cannot be
        offered."""
        if sampling.tools:
            self.template.check_tools()
        if any(isinstance(message, ImageMessage) for message in messages):
            raise RequestFailed("The embedded engine runs text models and does not accept images.", where=self.model)
        size = sum(len(message.content) for message in messages)
        try:
            arguments = (messages, sampling.effort, self.context, sampling.tools)
            ids = await off_loop(size, partial(self.template.ids, *arguments))
        except ValueError as error:
            raise RequestFailed(f"The prompt cannot be rendered: {error}.", where=self.model) from error
        opened = self.template.opened(sampling.effort)
        limit = self._thought_limit(sampling, opened)
        with off_the_clock():
            generated = await asyncio.wrap_future(self.engine.submit(ids, sampling, limit))
        replies = tuple(self._reply(sequence, opened) for sequence in generated)
        if sampling.tools:
            pairs = zip(replies, generated, strict=True)
            replies = tuple(self._with_calls(reply, sequence, opened, len(messages)) for reply, sequence in pairs)
        completion = Completion(
            replies=replies,
            prompt_tokens=len(ids),
            completion_tokens=sum(len(sequence.ids) for sequence in generated),
            model=self.model,
            prompt_token_ids=tuple(ids),
            thought_tokens=sum(reply.thought_tokens or 0 for reply in replies),
            version=max(sequence.version for sequence in generated),  # all have the same
        )
        self.on_completion(completion)
        return completion

    def _thought_limit(self, sampling: Sampling, opened: Marks | bool) -> ThoughtLimit | None:
        if sampling.max_thought_tokens is None:
            return None
        marks = opened if isinstance(opened, Marks) else self._marks
        forced = self.tokenizer(marks.forced, add_special_tokens=False)["input_ids"]
        has_begun = None if isinstance(opened, Marks) else partial(self._begins, marks.opening)
        return ThoughtLimit(sampling.max_thought_tokens, tuple(forced), partial(self._writes, marks.closing), has_begun)

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

    def _reply(self, sequence: Generated, opened: Marks | bool) -> Reply:
        """The reply with its thought apart. If it is a thought alone, the id that ended it belongs to the thought."""
        body = self._body(sequence)
        parts, count = separate_ids(body, lambda ids, plain: self.decode(ids, skip_special=plain), opened, self._known)
        reply = Reply(
            parts.spoken, sequence.finish_reason, sequence.ids, sequence.logprobs, self._alternatives(sequence)
        )
        if parts.thought is None:
            return reply
        tokens = len(sequence.ids) if not parts.closing else count
        return replace(reply, thought=parts.thought.strip(), thought_tokens=tokens)

    def _with_calls(self, reply: Reply, sequence: Generated, opened: Marks | bool, place: int) -> Reply:
        """The reply with its calls of tools apart. A text in which something marks a call that cannot be read keeps the
        marks, which may be special tokens.

        Args:
            place: that of the reply in its dialogue, for the ids of the calls.
        """
        body, form = self._body(sequence), self.template.call_form
        assert form is not None
        assert form.read is not None
        raw = self.decode(body, skip_special=False)
        parts, calls, thought = separate_calls(raw, form.read, opened, self._known, ended=reply.ended)
        if not calls and not any(mark in parts.said for mark in MARKS):
            return reply
        text = parts.spoken
        for token in special_tokens(self.tokenizer):
            text = text if token in MARKS else text.replace(token, "")
        if not calls:
            return replace(reply, text=text)
        named = (call.model_copy(update={"id": f"call-{place}-{number}"}) for number, call in enumerate(calls))
        reply = replace(reply, text=text.strip(), finish_reason="tool_calls", tool_calls=tuple(named))
        if parts.thought is None:
            return replace(reply, thought=None, thought_tokens=None)
        tokens = count_leading(thought, len(body), lambda count: self.decode(body[:count], skip_special=False))
        return replace(reply, thought=parts.thought.strip(), thought_tokens=tokens)

    def _body(self, sequence: Generated) -> tuple[int, ...]:
        """The ids without the one that ended the reply."""
        return sequence.ids[:-1] if sequence.ids[-1] in self.engine.ends else sequence.ids

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
